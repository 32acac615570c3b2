// Redisson's RLock against a server: `Locks basics|contend SECONDS HOST:PORT...`

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Locks {
    interface Test {
        void run() throws Exception;
    }

    static RedissonClient[] clients;

    static RedissonClient connect(String address) {
        Config config = new Config();
        config.setLockWatchdogTimeout(3_000);
        // Checked by the server's own fsync and quorum, so there is no replica to wait for.
        config.setCheckLockSyncedSlaves(false);
        config.useSingleServer()
            .setAddress("redis://" + address)
            .setConnectionMinimumIdleSize(1)
            .setConnectionPoolSize(16)
            .setRetryAttempts(20)
            .setTimeout(3_000);
        return Redisson.create(config);
    }

    static RLock lock(int client, String name) {
        return clients[client % clients.length].getLock(name);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    // A lock belongs to a thread: others try in their own.
    static boolean othersGet(String name, long waitMs) throws Exception {
        return CompletableFuture.supplyAsync(() -> {
            try {
                RLock lock = lock(1, name);
                boolean got = lock.tryLock(waitMs, 10_000, TimeUnit.MILLISECONDS);
                if (got) {
                    lock.unlock();
                }
                return got;
            } catch (InterruptedException error) {
                throw new RuntimeException(error);
            }
        }).get();
    }

    static void takenOnce() throws Exception {
        RLock lock = lock(0, "java/once");
        check(lock.tryLock(0, 10_000, TimeUnit.MILLISECONDS), "it is free");
        check(!othersGet("java/once", 0), "two hold the lock");
        lock.unlock();
        check(othersGet("java/once", 0), "it was given back");
    }

    static void takenAgain() throws Exception {
        RLock lock = lock(0, "java/again");
        lock.lock();
        lock.lock();
        check(lock.getHoldCount() == 2, "it is held twice");
        lock.unlock();
        check(lock.isHeldByCurrentThread() && !othersGet("java/again", 0), "it is still held");
        lock.unlock();
        check(!lock.isLocked(), "it is given back");
    }

    // Who waits listens to a channel: the message of the release must come.
    static void whoWaitsIsServed() throws Exception {
        RLock lock = lock(0, "java/wait");
        lock.lock(60, TimeUnit.SECONDS);
        AtomicBoolean given = new AtomicBoolean();
        CompletableFuture<Boolean> waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return othersGet("java/wait", 20_000) && given.get();
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        });
        Thread.sleep(500);
        given.set(true);
        lock.unlock();
        check(waiting.get(20, TimeUnit.SECONDS), "it was served, and not before");
    }

    // Without a lease of its own a lock is renewed every third of the watchdog's 3 s.
    static void theWatchdogRenews() throws Exception {
        RLock lock = lock(0, "java/watchdog");
        lock.lock();
        Thread.sleep(5_000);
        check(lock.isHeldByCurrentThread() && !othersGet("java/watchdog", 0), "it was renewed");
        lock.unlock();
    }

    static void aLostLockIsNotGivenBack() throws Exception {
        RLock lock = lock(0, "java/lost");
        lock.lock(200, TimeUnit.MILLISECONDS);
        check(othersGet("java/lost", 10_000), "it ran out");
        try {
            lock.unlock();
            throw new AssertionError("another's lock was given back");
        } catch (IllegalMonitorStateException expected) {
            check(!lock.isLocked(), "nobody holds it");
        }
    }

    static void readersShareAndAWriterDoesNot() throws Exception {
        RReadWriteLock lock = clients[0].getReadWriteLock("java/shared");
        lock.readLock().lock(10, TimeUnit.SECONDS);
        boolean[] got = CompletableFuture.supplyAsync(() -> {
            RReadWriteLock other = clients[clients.length - 1].getReadWriteLock("java/shared");
            boolean read = other.readLock().tryLock();
            if (read) {
                other.readLock().unlock();
            }
            return new boolean[] {read, other.writeLock().tryLock()};
        }).get();
        check(got[0] && !got[1], "readers share, writers do not");
        lock.readLock().unlock();
    }

    // Eight want one lock all the time. Two inside at once would be seen.
    static void neverTwo(int seconds) throws Exception {
        long until = System.currentTimeMillis() + seconds * 1_000L;
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        AtomicLong last = new AtomicLong();
        AtomicBoolean two = new AtomicBoolean();
        int[] counter = {0};
        AtomicInteger served = new AtomicInteger();
        ExecutorService workers = Executors.newFixedThreadPool(8);
        for (int number = 0; number < 8; number++) {
            int client = number;
            workers.submit(() -> {
                while (System.currentTimeMillis() < until) {
                    RLock lock = lock(client, "java/contended");
                    try {
                        if (!lock.tryLock(10_000, 5_000, TimeUnit.MILLISECONDS)) {
                            continue;
                        }
                    } catch (Exception error) {
                        failed.incrementAndGet();
                        continue;
                    }
                    two.compareAndSet(false, inside.incrementAndGet() != 1);
                    try {
                        int seen = counter[0];
                        Thread.sleep(2);
                        counter[0] = seen + 1;
                        served.incrementAndGet();
                        last.set(System.currentTimeMillis());
                        inside.decrementAndGet();
                        lock.unlock();
                    } catch (Exception error) {
                        // What is not given back, because nobody answers, runs out.
                        failed.incrementAndGet();
                    }
                }
            });
        }
        workers.shutdown();
        check(workers.awaitTermination(seconds + 120, TimeUnit.SECONDS), "all end");
        System.out.printf("measured: Redisson: served %d times, %d calls failed%n", served.get(), failed.get());
        check(!two.get() && counter[0] == served.get(), "two hold the lock");
        check(served.get() > 50, "served only " + served.get() + " times");
        check(until - last.get() < 15_000, "nobody was served at the end");
    }

    public static void main(String[] args) {
        clients = new RedissonClient[args.length - 2];
        for (int number = 0; number < clients.length; number++) {
            clients[number] = connect(args[number + 2]);
        }
        Map<String, Test> tests = new LinkedHashMap<>();
        if (args[0].equals("contend")) {
            tests.put("never two hold the lock", () -> neverTwo(Integer.parseInt(args[1])));
        } else {
            tests.put("a lock is taken once, and given back", Locks::takenOnce);
            tests.put("its holder may take it again", Locks::takenAgain);
            tests.put("who waits is told when it is given back", Locks::whoWaitsIsServed);
            tests.put("the watchdog renews it", Locks::theWatchdogRenews);
            tests.put("a lost lock is not given back", Locks::aLostLockIsNotGivenBack);
            tests.put("readers share, a writer does not", Locks::readersShareAndAWriterDoesNot);
        }
        int failed = 0;
        for (Map.Entry<String, Test> test : tests.entrySet()) {
            try {
                test.getValue().run();
                System.out.println("test " + test.getKey() + " ... ok");
            } catch (Throwable error) {
                failed++;
                System.out.println("test " + test.getKey() + " ... FAILED: " + error);
                error.printStackTrace(System.out);
            }
        }
        System.out.printf("test result: %s. %d passed; %d failed%n", failed == 0 ? "ok" : "FAILED", tests.size() - failed, failed);
        System.exit(Math.min(failed, 1));
    }
}
