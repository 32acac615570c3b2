// Acquires Curator's mutexes on behalf of another program: `Doors HOST:PORT...`
//
// Each line of its input is `ID acquire PATH` or `ID release`. It prints `ID token CZXID` when that
// contender holds the mutex, and `ID released`. It exits at the end of its input.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

public class Doors {
    static final Map<String, BlockingQueue<String>> contenders = new ConcurrentHashMap<>();

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    // A mutex belongs to the thread that has acquired it.
    static void contend(CuratorFramework client, String id, String path, BlockingQueue<String> told) {
        try {
            InterProcessMutex mutex = new InterProcessMutex(client, path);
            mutex.acquire();
            String node = mutex.getParticipantNodes().iterator().next();
            say(id + " token " + client.checkExists().forPath(node).getCzxid());
            told.take();
            mutex.release();
            say(id + " released");
        } catch (Exception error) {
            say(id + " failed " + error);
        }
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework[] clients = new CuratorFramework[args.length];
        for (int number = 0; number < clients.length; number++) {
            clients[number] = Recipes.connect(args[number]);
        }
        int next = 0;
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            String[] words = line.split(" ");
            if (words[1].equals("acquire")) {
                CuratorFramework client = clients[next++ % clients.length];
                BlockingQueue<String> told = new LinkedBlockingQueue<>();
                contenders.put(words[0], told);
                new Thread(() -> contend(client, words[0], words[2], told)).start();
            } else {
                contenders.remove(words[0]).put(words[1]);
            }
        }
        System.exit(0);
    }
}
