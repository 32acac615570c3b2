import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** What is done while a lock is held. More than `limit` at once would be seen. */
class Contended {
    final String name;
    private final int limit;
    private final AtomicInteger inside = new AtomicInteger();
    private final AtomicBoolean tooMany = new AtomicBoolean();
    private final AtomicLong last = new AtomicLong();
    final AtomicInteger served = new AtomicInteger();
    final AtomicInteger failed = new AtomicInteger();

    Contended(String name, int limit) {
        this.name = name;
        this.limit = limit;
    }

    void work() throws InterruptedException {
        if (inside.incrementAndGet() > limit) {
            tooMany.set(true);
        }
        try {
            Thread.sleep(2);
        } finally {
            inside.decrementAndGet();
        }
        served.incrementAndGet();
        last.set(System.currentTimeMillis());
    }

    void checkLimit() {
        Recipes.check(!tooMany.get(), name + ": more than " + limit + " held it at once");
    }

    void check(long until) {
        System.out.printf("measured: Curator: %s: served %d times, %d calls failed%n", name, served.get(), failed.get());
        checkLimit();
        Recipes.check(served.get() > 20, name + ": served only " + served.get() + " times");
        Recipes.check(until - last.get() < 15_000, name + ": nobody was served at the end");
    }
}
