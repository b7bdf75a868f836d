import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingStream;
import leasehold.Lease;
import leasehold.LeaseClient;
import leasehold.LeaseException;
import leasehold.LeaseListener;
import leasehold.grpc.Daemons;

/** A client that many virtual threads use, as a program of Java 21 or later: java Virtual.java TARGET NAMESPACE THREADS. VirtualThreadsTest judges what it says. */
class Virtual {
    private static final Duration SHORT = Duration.ofSeconds(30); // long enough for a machine with other work
    private static final Duration LONG = Duration.ofMinutes(2); // a bound, not a measurement

    private final LeaseClient client;
    private final String namespace;
    private final int n;
    private final ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor();

    Virtual(String target, String namespace, int n) {
        client = (target.startsWith("jdbc:") ? LeaseClient.builder(target) : LeaseClient.builder(Daemons.at(target))).patience(LONG).build();
        this.namespace = namespace;
        this.n = n;
    }

    public static void main(String[] arguments) throws Exception {
        AtomicInteger pinned = new AtomicInteger();
        try (RecordingStream recording = new RecordingStream()) {
            recording.enable("jdk.VirtualThreadPinned").withoutThreshold().withStackTrace();
            recording.onEvent("jdk.VirtualThreadPinned", Virtual::tell);
            recording.startAsync();
            Thread.ofVirtual().start(Control::pin).join();
            new Virtual(arguments[0], arguments[1], Integer.parseInt(arguments[2])).run();
            recording.stop(); // and what it has seen is told
        }
    }

    private static void tell(RecordedEvent event) {
        Set<String> classes = event.getStackTrace().getFrames().stream().map(each -> each.getMethod().getType().getName()).collect(Collectors.toSet());
        if (classes.contains("Virtual$Control")) {
            System.out.println("the recording sees a pinned thread");
        } else if (Runtime.version().feature() >= 24 && event.getString("pinnedReason").endsWith(" on stack") && !classes.contains("java.lang.ClassLoader")) {
            // Before 24 a thread was pinned wherever it waited in a synchronized block. Since then by a frame that is not Java's on its stack. The machine
            // pins one while it loads a class, and without such a frame while it links or initializes one that another thread has begun with.
            System.out.println("pinned " + event);
        }
    }

    /** Pins the first thread that uses it: the frame of the initializer is the machine's. */
    private static final class Control {
        static {
            pause(20);
        }

        static void pin() {
        }
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private void run() throws Exception {
        System.out.println("renewed " + sum(start(this::hold)));
        int[] counts = new int[n / 10];
        sum(start(each -> count(counts, each % counts.length)));
        System.out.println("waited " + Arrays.stream(counts).distinct().boxed().toList());
        System.out.println("interrupted " + interrupt());
        System.out.println("interrupted by a loss " + sum(start(this::lose)));
        close();
        threads.close();
    }

    private interface Numbered {
        int run(int each) throws Exception;
    }

    private List<Future<Integer>> start(Numbered work) {
        List<Future<Integer>> all = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            int each = i;
            all.add(threads.submit(() -> work.run(each)));
        }
        return all;
    }

    private static int sum(List<Future<Integer>> all) throws Exception {
        int sum = 0;
        for (Future<Integer> each : all) {
            sum += each.get();
        }
        return sum;
    }

    /** 1: it was held until it had been renewed. */
    private int hold(int each) throws Exception {
        CountDownLatch renewed = new CountDownLatch(1);
        try (Lease lease = client.lease(namespace, "own-" + each).duration(SHORT).tell(new LeaseListener() {
            @Override
            public void renewed(Lease unused) {
                renewed.countDown();
            }
        }).acquire()) {
            boolean isRenewed = renewed.await(LONG.toSeconds(), TimeUnit.SECONDS);
            lease.check();
            return isRenewed ? 1 : 0;
        }
    }

    /** Several threads wait for one key, and only its holder counts. */
    private int count(int[] counts, int which) throws Exception {
        try (Lease lease = client.lease(namespace, "shared-" + which).waitFor(LONG).acquire()) {
            int before = counts[which];
            pause(1);
            counts[which] = before + 1;
            lease.check();
        }
        return 1;
    }

    /** All wait, and are interrupted: then nobody waits, and the key is free once it is released. */
    private int interrupt() throws Exception {
        Lease first = client.lease(namespace, "interrupted").acquire();
        AtomicInteger interrupted = new AtomicInteger();
        List<Thread> waiters = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            waiters.add(Thread.ofVirtual().start(() -> {
                try {
                    client.lease(namespace, "interrupted").waitForever().acquire();
                } catch (InterruptedException e) {
                    interrupted.incrementAndGet();
                }
            }));
        }
        awaitWaiters("interrupted", n);
        waiters.forEach(Thread::interrupt);
        for (Thread each : waiters) {
            each.join();
        }
        awaitWaiters("interrupted", 0);
        first.release();
        client.lease(namespace, "interrupted").acquire().release();
        return interrupted.get();
    }

    private void awaitWaiters(String key, int wanted) {
        while (client.explain(namespace, key).waiters() != wanted) {
            pause(20);
        }
    }

    /** How many were interrupted by the loss of their lease, which the test ends. */
    private int lose(int each) throws Exception {
        try {
            return client.lease(namespace, "lost-" + each).duration(SHORT).call(lease -> {
                System.out.println("end " + lease.key());
                Thread.sleep(LONG);
                return 0;
            });
        } catch (LeaseException.Lost e) {
            return e.reason() == LeaseException.Reason.FORCED && e.getSuppressed()[0] instanceof InterruptedException ? 1 : 0;
        }
    }

    /** A virtual thread closes the client while half of the others hold a lease, and half wait for it. */
    private void close() throws Exception {
        AtomicInteger held = new AtomicInteger();
        List<Future<Integer>> all = start(each -> {
            try (Lease lease = client.lease(namespace, "closed-" + each / 2).waitForever().acquire()) {
                held.incrementAndGet();
                while (lease.isHeld()) {
                    pause(10);
                }
                lease.check();
                return 0;
            } catch (LeaseException.Lost e) {
                return e.reason() == LeaseException.Reason.CLOSED ? 1 : 0;
            } catch (IllegalStateException e) {
                return e.getMessage().equals("the client is closed") ? 1000 : 0;
            }
        });
        while (held.get() < n / 2) {
            pause(10);
        }
        for (int each = 0; each < n / 2; each++) {
            awaitWaiters("closed-" + each, 1);
        }
        Thread.ofVirtual().start(client::close).join();
        int sum = sum(all);
        System.out.println("closed " + sum % 1000 + " held, " + sum / 1000 + " waited");
    }
}
