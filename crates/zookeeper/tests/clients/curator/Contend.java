// All recipes at once, under contention.

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

class Contend {
    interface Attempt {
        void run(int worker, Contended work) throws Exception;
    }

    static void withLock(InterProcessLock lock, Contended work) throws Exception {
        if (!lock.acquire(10, TimeUnit.SECONDS)) {
            return;
        }
        try {
            work.work();
        } finally {
            lock.release();
        }
    }

    static Map<Contended, Attempt> recipes() {
        Map<Contended, Attempt> recipes = new LinkedHashMap<>();
        recipes.put(new Contended("mutex", 1), (worker, work) ->
            withLock(new InterProcessMutex(Recipes.client(worker), "/contended/mutex"), work));
        recipes.put(new Contended("semaphore mutex", 1), (worker, work) ->
            withLock(new InterProcessSemaphoreMutex(Recipes.client(worker), "/contended/semaphore-mutex"), work));
        recipes.put(new Contended("write lock", 1), (worker, work) -> {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(Recipes.client(worker), "/contended/read-write");
            // Only one worker reads: two readers could hold the lock at the same time.
            withLock(worker == 0 ? lock.readLock() : lock.writeLock(), work);
        });
        recipes.put(new Contended("multi lock", 1), (worker, work) ->
            withLock(Recipes.multi(worker, "/contended/multi-a", "/contended/multi-b"), work));
        recipes.put(new Contended("semaphore", 2), (worker, work) -> {
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(Recipes.client(worker), "/contended/semaphore", 2);
            Lease lease = semaphore.acquire(10, TimeUnit.SECONDS);
            if (lease != null) {
                try {
                    work.work();
                } finally {
                    semaphore.returnLease(lease);
                }
            }
        });
        recipes.put(new Contended("latch", 1), (worker, work) -> {
            try (LeaderLatch latch = new LeaderLatch(Recipes.client(worker), "/contended/latch")) {
                latch.start();
                if (latch.await(10, TimeUnit.SECONDS)) {
                    work.work();
                }
            }
        });
        return recipes;
    }

    static List<LeaderSelector> startSelectors(Contended leads) {
        List<LeaderSelector> selectors = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            LeaderSelector selector = new LeaderSelector(Recipes.client(number), "/contended/selector", new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) throws Exception {
                    leads.work();
                }
            });
            selector.autoRequeue();
            selector.start();
            selectors.add(selector);
        }
        return selectors;
    }

    // Three workers for each recipe, on separate connections, while leaders are killed.
    static void neverTooMany(int seconds) throws Exception {
        long until = System.currentTimeMillis() + seconds * 1_000L;
        Map<Contended, Attempt> recipes = recipes();
        ExecutorService workers = Executors.newCachedThreadPool();
        for (Map.Entry<Contended, Attempt> recipe : recipes.entrySet()) {
            for (int number = 0; number < 3; number++) {
                int worker = number;
                workers.submit(() -> {
                    while (System.currentTimeMillis() < until) {
                        try {
                            recipe.getValue().run(worker, recipe.getKey());
                        } catch (Exception error) {
                            recipe.getKey().failed.incrementAndGet();
                        }
                    }
                });
            }
        }
        Contended leads = new Contended("leader selector", 1);
        List<LeaderSelector> selectors = startSelectors(leads);
        workers.shutdown();
        Recipes.check(workers.awaitTermination(seconds + 120, TimeUnit.SECONDS), "all end");
        for (LeaderSelector selector : selectors) {
            selector.close();
        }
        AssertionError failure = null;
        recipes.put(leads, null);
        for (Contended recipe : recipes.keySet()) {
            try {
                recipe.check(until);
            } catch (AssertionError error) {
                failure = error;
            }
        }
        if (failure != null) {
            throw failure;
        }
        // Session timeouts are longer than any leader change here.
        Recipes.check(Recipes.sessionsLost.get() == 0, Recipes.sessionsLost + " sessions were lost");
    }
}
