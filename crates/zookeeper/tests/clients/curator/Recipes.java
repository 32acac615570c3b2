// Curator's recipes against a server: `Recipes basics|contend SECONDS HOST:PORT...`

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

public class Recipes {
    interface Test {
        void run() throws Exception;
    }

    static final int SESSION_MS = 15_000;
    static final int PATIENCE_MS = 30_000;
    /** How long something is watched not to happen. */
    static final int QUIET_MS = 300;

    static String[] addresses;
    static CuratorFramework[] clients;
    static final AtomicInteger sessionsLost = new AtomicInteger();
    static final ExecutorService others = Executors.newCachedThreadPool();

    static CuratorFramework connect(String servers) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(servers, SESSION_MS, 5_000, new RetryNTimes(100, 100));
        client.getConnectionStateListenable().addListener((of, state) -> {
            if (state == ConnectionState.LOST) {
                sessionsLost.incrementAndGet();
            }
        });
        client.start();
        check(client.blockUntilConnected(PATIENCE_MS, TimeUnit.MILLISECONDS), servers + " does not answer");
        return client;
    }

    static CuratorFramework client(int number) {
        return clients[number % clients.length];
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    // Locks belong to threads, so other contenders run in threads of their own.
    static <T> T elsewhere(Callable<T> call) throws Exception {
        return later(call).get(2 * PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    static <T> CompletableFuture<T> later(Callable<T> call) {
        return CompletableFuture.supplyAsync(() -> {
            try {
                return call.call();
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }, others);
    }

    /** Whether another thread gets it within that time; it gives it back. */
    static boolean othersGet(InterProcessLock lock, int waitMs) throws Exception {
        return elsewhere(() -> {
            boolean got = lock.acquire(waitMs, TimeUnit.MILLISECONDS);
            if (got) {
                lock.release();
            }
            return got;
        });
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void until(String what, Condition condition) throws Exception {
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.holds()) {
            check(System.currentTimeMillis() < until, "not yet: " + what);
            Thread.sleep(10);
        }
    }

    static int children(String path) throws Exception {
        return client(0).checkExists().forPath(path) == null ? 0 : client(0).getChildren().forPath(path).size();
    }

    static void mutexIsReentrantAndExcludes() throws Exception {
        String path = "/curator/mutex";
        InterProcessMutex mutex = new InterProcessMutex(client(0), path);
        InterProcessMutex other = new InterProcessMutex(client(1), path);
        mutex.acquire();
        mutex.acquire();
        check(!othersGet(other, QUIET_MS), "two hold the mutex");
        mutex.release();
        check(mutex.isOwnedByCurrentThread() && !othersGet(other, QUIET_MS), "it is still held");
        mutex.release();
        check(othersGet(other, PATIENCE_MS), "it was released");
        check(children(path) == 0, "nobody is left in line");
    }

    // The czxid of a contender's znode is its fencing token.
    static void mutexServesInOrderWithRisingTokens() throws Exception {
        String path = "/curator/in-order";
        List<Integer> order = new CopyOnWriteArrayList<>();
        List<Long> tokens = new CopyOnWriteArrayList<>();
        InterProcessMutex first = new InterProcessMutex(client(0), path);
        first.acquire();
        List<CompletableFuture<Void>> waiting = new ArrayList<>();
        for (int number = 0; number < 9; number++) {
            int place = number;
            waiting.add(later(() -> {
                InterProcessMutex mutex = new InterProcessMutex(client(place), path);
                mutex.acquire();
                order.add(place);
                Collection<String> nodes = mutex.getParticipantNodes();
                tokens.add(client(place).checkExists().forPath(nodes.iterator().next()).getCzxid());
                mutex.release();
                return null;
            }));
            until("contender " + place + " is in line", () -> children(path) == place + 2);
        }
        first.release();
        for (CompletableFuture<Void> one : waiting) {
            one.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
        }
        check(order.equals(List.of(0, 1, 2, 3, 4, 5, 6, 7, 8)), "served in the order " + order);
        for (int at = 1; at < tokens.size(); at++) {
            check(tokens.get(at) > tokens.get(at - 1), "tokens do not rise: " + tokens);
        }
    }

    static void aDeadHoldersMutexPassesOn() throws Exception {
        String path = "/curator/dead";
        CuratorFramework doomed = connect(addresses[0]);
        InterProcessMutex held = new InterProcessMutex(doomed, path);
        elsewhere(() -> {
            held.acquire();
            return null;
        });
        CompletableFuture<Boolean> served = later(() -> othersGet(new InterProcessMutex(client(1), path), PATIENCE_MS));
        until("somebody waits", () -> children(path) == 2);
        doomed.close();
        check(served.get(PATIENCE_MS, TimeUnit.MILLISECONDS), "who waits was served");
    }

    static void semaphoreMutexIsNotReentrant() throws Exception {
        String path = "/curator/semaphore-mutex";
        InterProcessSemaphoreMutex mutex = new InterProcessSemaphoreMutex(client(0), path);
        mutex.acquire();
        check(!mutex.acquire(QUIET_MS, TimeUnit.MILLISECONDS), "it was acquired twice");
        check(!othersGet(new InterProcessSemaphoreMutex(client(1), path), QUIET_MS), "two hold it");
        mutex.release();
        check(othersGet(new InterProcessSemaphoreMutex(client(1), path), PATIENCE_MS), "it was released");
    }

    static InterProcessReadWriteLock readWrite(int number) {
        return new InterProcessReadWriteLock(client(number), "/curator/read-write");
    }

    static void readersShareAndAWriterDoesNot() throws Exception {
        InterProcessReadWriteLock lock = readWrite(0);
        lock.readLock().acquire();
        check(othersGet(readWrite(1).readLock(), PATIENCE_MS), "readers share");
        check(!othersGet(readWrite(2).writeLock(), QUIET_MS), "a writer came in beside a reader");
        check(!lock.writeLock().acquire(QUIET_MS, TimeUnit.MILLISECONDS), "a reader became a writer");
        lock.readLock().release();
        lock.writeLock().acquire();
        check(!othersGet(readWrite(1).readLock(), QUIET_MS), "a reader came in beside a writer");
        check(!othersGet(readWrite(1).writeLock(), QUIET_MS), "two write");
        lock.writeLock().release();
        check(othersGet(readWrite(1).writeLock(), PATIENCE_MS), "it was released");
    }

    // A writer may also read, and stays a reader when it releases the write lock.
    static void aWriterMayReadAndBecomeAReader() throws Exception {
        InterProcessReadWriteLock lock = readWrite(0);
        lock.writeLock().acquire();
        check(lock.readLock().acquire(PATIENCE_MS, TimeUnit.MILLISECONDS), "a writer may read");
        check(!othersGet(readWrite(1).readLock(), QUIET_MS), "a reader came in beside a writer");
        lock.writeLock().release();
        check(othersGet(readWrite(1).readLock(), PATIENCE_MS), "readers share");
        check(!othersGet(readWrite(2).writeLock(), QUIET_MS), "a writer came in beside a reader");
        lock.readLock().release();
        check(othersGet(readWrite(2).writeLock(), PATIENCE_MS), "it was released");
        check(children("/curator/read-write") == 0, "nobody is left in line");
    }

    // A reader that comes after a waiting writer waits for it.
    static void readersDoNotOvertakeAWriter() throws Exception {
        List<String> order = new CopyOnWriteArrayList<>();
        InterProcessReadWriteLock lock = readWrite(0);
        lock.readLock().acquire();
        CompletableFuture<Void> writer = later(() -> {
            InterProcessMutex write = readWrite(1).writeLock();
            write.acquire();
            order.add("writer");
            write.release();
            return null;
        });
        until("the writer waits", () -> children("/curator/read-write") == 2);
        CompletableFuture<Void> reader = later(() -> {
            InterProcessMutex read = readWrite(2).readLock();
            read.acquire();
            order.add("reader");
            read.release();
            return null;
        });
        until("the reader waits", () -> children("/curator/read-write") == 3);
        check(order.isEmpty(), "served beside a reader, or before a writer: " + order);
        lock.readLock().release();
        writer.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
        reader.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
        check(order.equals(List.of("writer", "reader")), "served in the order " + order);
    }

    static void semaphoreLeasesAsManyAsItHas() throws Exception {
        String path = "/curator/semaphore";
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client(0), path, 3);
        InterProcessSemaphoreV2 other = new InterProcessSemaphoreV2(client(1), path, 3);
        Collection<Lease> leases = semaphore.acquire(2);
        Lease third = other.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS);
        check(third != null, "there are three leases");
        check(other.acquire(QUIET_MS, TimeUnit.MILLISECONDS) == null, "there are only three leases");
        CompletableFuture<Lease> fourth = later(() -> other.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS));
        Thread.sleep(QUIET_MS);
        check(!fourth.isDone(), "there are only three leases");
        semaphore.returnLease(leases.iterator().next());
        check(fourth.get() != null, "a returned lease is used again");
        other.returnLease(third);
        other.returnLease(fourth.get());
        semaphore.returnAll(leases);
        check(semaphore.getParticipantNodes().isEmpty(), "leases are left");
    }

    static InterProcessMultiLock multi(int number, String... paths) {
        return new InterProcessMultiLock(client(number), List.of(paths));
    }

    static void multiLockIsAllOrNothing() throws Exception {
        InterProcessMutex one = new InterProcessMutex(client(0), "/curator/multi-b");
        InterProcessMultiLock both = multi(1, "/curator/multi-a", "/curator/multi-b");
        one.acquire();
        check(!othersGet(both, QUIET_MS), "one of its locks is held");
        check(othersGet(new InterProcessMutex(client(2), "/curator/multi-a"), PATIENCE_MS), "none is kept");
        one.release();
        elsewhere(() -> {
            both.acquire();
            check(!one.acquire(QUIET_MS, TimeUnit.MILLISECONDS), "two hold a lock");
            both.release();
            return null;
        });
        check(one.acquire(PATIENCE_MS, TimeUnit.MILLISECONDS), "it was released");
        one.release();
    }

    static void latchHasOneLeader() throws Exception {
        List<LeaderLatch> latches = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            LeaderLatch latch = new LeaderLatch(client(number), "/curator/latch", "candidate " + number);
            latch.start();
            int candidates = number + 1;
            until("it is in line", () -> latch.getParticipants().size() == candidates);
            latches.add(latch);
        }
        for (int number = 0; number < 3; number++) {
            LeaderLatch leader = latches.get(number);
            check(leader.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "candidate " + number + " leads");
            check(leader.getLeader().getId().equals("candidate " + number), "all know the leader");
            for (LeaderLatch other : latches.subList(number + 1, 3)) {
                check(!other.hasLeadership(), "two lead");
            }
            leader.close();
        }
    }

    static void selectorLeadsInTurn() throws Exception {
        String path = "/curator/selector";
        List<Integer> turns = new CopyOnWriteArrayList<>();
        Contended leads = new Contended("leader", 1);
        CountDownLatch done = new CountDownLatch(6);
        List<LeaderSelector> selectors = new ArrayList<>();
        CountDownLatch go = new CountDownLatch(1);
        for (int number = 0; number < 3; number++) {
            int place = number;
            LeaderSelector selector = new LeaderSelector(client(number), path, new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) throws Exception {
                    go.await();
                    turns.add(place);
                    leads.work();
                    done.countDown();
                    // It must queue behind the others before its next turn.
                    Thread.sleep(QUIET_MS);
                }
            });
            selector.setId("candidate " + number);
            selector.autoRequeue();
            selector.start();
            selectors.add(selector);
            until("it is in line", () -> selector.getParticipants().size() == place + 1);
        }
        go.countDown();
        check(done.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "everybody leads twice: " + turns);
        for (LeaderSelector selector : selectors) {
            selector.close();
        }
        check(turns.subList(0, 6).equals(List.of(0, 1, 2, 0, 1, 2)), "led in the order " + turns);
        leads.checkLimit();
    }

    static void doubleBarrierIsEnteredAndLeftTogether() throws Exception {
        int members = 4;
        AtomicInteger coming = new AtomicInteger();
        AtomicInteger going = new AtomicInteger();
        List<CompletableFuture<Void>> all = new ArrayList<>();
        for (int number = 0; number < members; number++) {
            int member = number;
            all.add(later(() -> {
                DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client(member), "/curator/barrier", members);
                Thread.sleep(50 * member);
                coming.incrementAndGet();
                check(barrier.enter(PATIENCE_MS, TimeUnit.MILLISECONDS), "it is entered");
                check(coming.get() == members, "entered before all had come");
                Thread.sleep(50 * member);
                going.incrementAndGet();
                check(barrier.leave(PATIENCE_MS, TimeUnit.MILLISECONDS), "it is left");
                check(going.get() == members, "left before all were done");
                return null;
            }));
        }
        for (CompletableFuture<Void> one : all) {
            one.get(2 * PATIENCE_MS, TimeUnit.MILLISECONDS);
        }
    }

    static void aHolderIsAskedToLetGo() throws Exception {
        String path = "/curator/revocable";
        InterProcessMutex held = new InterProcessMutex(client(0), path);
        CountDownLatch asked = new CountDownLatch(1);
        held.makeRevocable(lock -> asked.countDown());
        held.acquire();
        CompletableFuture<Boolean> waiting = later(() -> othersGet(new InterProcessMutex(client(1), path), PATIENCE_MS));
        until("somebody waits", () -> children(path) == 2);
        check(asked.getCount() == 1, "nobody has asked yet");
        Revoker.attemptRevoke(client(1), held.getParticipantNodes().iterator().next());
        check(asked.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "the holder is told");
        check(!waiting.isDone(), "it is still held");
        held.release();
        check(waiting.get(PATIENCE_MS, TimeUnit.MILLISECONDS), "who waits is served");
    }

    public static void main(String[] args) throws Exception {
        addresses = new String[args.length - 2];
        System.arraycopy(args, 2, addresses, 0, addresses.length);
        boolean contends = args[0].equals("contend");
        clients = new CuratorFramework[3];
        for (int number = 0; number < clients.length; number++) {
            // A client needs all addresses to fail over to another node.
            clients[number] = connect(contends ? String.join(",", addresses) : addresses[number % addresses.length]);
        }
        Map<String, Test> tests = new LinkedHashMap<>();
        if (contends) {
            tests.put("never too many hold a lock", () -> Contend.neverTooMany(Integer.parseInt(args[1])));
        } else {
            tests.put("a mutex is reentrant, and excludes", Recipes::mutexIsReentrantAndExcludes);
            tests.put("a mutex serves in order, with rising tokens", Recipes::mutexServesInOrderWithRisingTokens);
            tests.put("a dead holder's mutex passes on", Recipes::aDeadHoldersMutexPassesOn);
            tests.put("a semaphore mutex is not reentrant", Recipes::semaphoreMutexIsNotReentrant);
            tests.put("readers share, a writer does not", Recipes::readersShareAndAWriterDoesNot);
            tests.put("a writer may read, and become a reader", Recipes::aWriterMayReadAndBecomeAReader);
            tests.put("readers do not overtake a writer", Recipes::readersDoNotOvertakeAWriter);
            tests.put("a semaphore leases as many as it has", Recipes::semaphoreLeasesAsManyAsItHas);
            tests.put("a multi lock is all or nothing", Recipes::multiLockIsAllOrNothing);
            tests.put("a latch has one leader", Recipes::latchHasOneLeader);
            tests.put("a selector's candidates lead in turn", Recipes::selectorLeadsInTurn);
            tests.put("a double barrier is entered and left together", Recipes::doubleBarrierIsEnteredAndLeftTogether);
            tests.put("a holder is asked to let go", Recipes::aHolderIsAskedToLetGo);
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
