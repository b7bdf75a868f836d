package leasehold;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A program that holds a lease, and its parent's view of it. */
final class Program implements AutoCloseable {
    private final Process process;
    private final Thread reader;
    private final List<String> lines = new ArrayList<>();

    public static void main(String[] arguments) throws InterruptedException {
        LeaseClient client = Site.builder(arguments[1]).patience(Duration.ofMinutes(1)).build();
        // Connects, which an acquire tries again: the first connection of a process takes part of a short lease.
        client.lease("cases", arguments[2] + " connects").acquire().release();
        LeaseRequest request = client.lease("cases", arguments[2]).duration(Duration.ofMillis(Long.parseLong(arguments[3])));
        if (arguments[0].equals("lead")) {
            request.owner("child").lead(Program::lead);
        }
        Lease lease = (arguments[0].equals("hold") ? request.hold() : request).acquire();
        System.out.println("token " + lease.token());
        if (arguments[0].equals("exit")) {
            throw new IllegalStateException("the end of a program that does not close its client"); // status 1
        }
        while (lease.isHeld()) {
            System.out.println("working");
            Thread.sleep(200);
        }
        System.out.println("lost " + lease.lost());
        System.exit(4);
    }

    private static Void lead(Lease lease) {
        System.out.println("token " + lease.token());
        try {
            while (true) {
                System.out.println("working");
                Thread.sleep(200);
            }
        } catch (InterruptedException e) {
            System.out.println("lost " + lease.lost());
            System.exit(4);
            return null;
        }
    }

    Program(Site site, String what, Duration duration) throws IOException {
        this(site, what, duration, site.on.equals("grpc") ? System.getenv("LEASEHOLD_TEST_DAEMON") : site.url);
    }

    Program(Site site, String what, Duration duration, String to) throws IOException {
        String path = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        process = new ProcessBuilder(ProcessHandle.current().info().command().orElse("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, Program.class.getName(), what,
                to, site.key, String.valueOf(duration.toMillis())).redirectErrorStream(true).start();
        reader = new Thread(() -> process.inputReader().lines().forEach(line -> {
            synchronized (lines) {
                lines.add(line);
            }
        }));
        reader.setDaemon(true);
        reader.start();
        site.atEnd(this);
    }

    void signal(String name) throws Exception {
        new ProcessBuilder("kill", "-" + name, String.valueOf(process.pid())).start().waitFor();
    }

    int count(String word) {
        synchronized (lines) {
            return (int) lines.stream().filter(line -> line.startsWith(word)).count();
        }
    }

    /** The first line that begins so, once it is there. */
    String line(String word) throws Exception {
        Site.await("a line with " + word, () -> count(word) > 0 || !reader.isAlive());
        synchronized (lines) {
            return lines.stream().filter(line -> line.startsWith(word)).findFirst().orElseThrow(() -> new AssertionError(lines.toString()));
        }
    }

    int status() throws InterruptedException {
        return process.waitFor(180, TimeUnit.SECONDS) ? process.exitValue() : -1;
    }

    @Override
    public void close() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }
}
