package leasehold.testing;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;

/** The daemon of this process. keeper.sh starts it, and ends it when this process has ended. */
final class Daemon {
    private static Daemon running; // guarded by the class
    private final Writer commands;
    private final BufferedReader answers;
    private final InetSocketAddress server;
    private final Path directory;
    private final AtomicInteger worlds = new AtomicInteger();

    private Daemon() throws IOException {
        String keeper;
        try (InputStream script = Daemon.class.getResourceAsStream("keeper.sh")) {
            keeper = new String(script.readAllBytes(), StandardCharsets.UTF_8);
        }
        String program = System.getenv().getOrDefault("LEASEHOLDD", "leaseholdd");
        Process process = new ProcessBuilder("/bin/sh", "-c", keeper, "keeper.sh", program).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        commands = process.outputWriter();
        answers = process.inputReader();
        String line = answers.readLine();
        if (line == null) {
            throw new IllegalStateException("leaseholdd does not start: its log is above. Put leaseholdd into PATH, or name it in LEASEHOLDD");
        }
        String[] facts = line.split("[: ]"); // HOST:PORT DIRECTORY
        server = new InetSocketAddress(facts[0], Integer.parseInt(facts[1]));
        directory = Path.of(facts[2]);
    }

    static synchronized Daemon running() {
        try {
            running = running == null ? new Daemon() : running;
            return running;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    InetSocketAddress server() {
        return server;
    }

    Path socket() {
        return directory.resolve("state/run/.s.PGSQL.5432");
    }

    int nextWorld() {
        return worlds.incrementAndGet();
    }

    synchronized void failOver() {
        try {
            commands.write("fail over\n");
            commands.flush();
            if (answers.readLine() == null) {
                throw new IllegalStateException("leaseholdd does not start again: its log is above");
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
