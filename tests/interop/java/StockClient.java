// A stock grpc-java client, without generated stubs:
//
//   java StockClient once TARGETS [CA [KEY CERT]]       one lease is taken, renewed and given back: "ok pair", or "failed ..." and exit 1
//   java StockClient SERVICE_CONFIG TARGETS             works through restarts: see test_rolling_restart.py
//
// With files it speaks TLS; the token in LEASEHOLD_TEST_TOKEN goes with each call.

import com.google.gson.Gson;
import com.google.protobuf.Duration;
import com.google.protobuf.Message;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptor;
import io.grpc.ClientInterceptors;
import io.grpc.EquivalentAddressGroup;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.NameResolverRegistry;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerArray;
import leasehold.v1.AcquireRequest;
import leasehold.v1.AcquireResponse;
import leasehold.v1.HeartbeatRequest;
import leasehold.v1.HeartbeatResponse;
import leasehold.v1.LeaseRef;
import leasehold.v1.ReleaseItem;
import leasehold.v1.ReleaseRequest;
import leasehold.v1.ReleaseResponse;
import leasehold.v1.Scope;

final class StockClient {
    private static final int WORKERS = 4;
    private static final int TIMEOUT_S = 60;
    private static final AtomicIntegerArray pairs = new AtomicIntegerArray(WORKERS);
    private static volatile boolean stopped;

    private static <Q extends Message, A extends Message> MethodDescriptor<Q, A> method(String name, Q request, A answer) {
        return MethodDescriptor.<Q, A>newBuilder().setType(MethodDescriptor.MethodType.UNARY)
                .setFullMethodName("leasehold.v1.LeaseService/" + name)
                .setRequestMarshaller(ProtoUtils.marshaller(request)).setResponseMarshaller(ProtoUtils.marshaller(answer)).build();
    }

    private static final MethodDescriptor<AcquireRequest, AcquireResponse> ACQUIRE =
            method("Acquire", AcquireRequest.getDefaultInstance(), AcquireResponse.getDefaultInstance());
    private static final MethodDescriptor<HeartbeatRequest, HeartbeatResponse> HEARTBEAT =
            method("Heartbeat", HeartbeatRequest.getDefaultInstance(), HeartbeatResponse.getDefaultInstance());
    private static final MethodDescriptor<ReleaseRequest, ReleaseResponse> RELEASE =
            method("Release", ReleaseRequest.getDefaultInstance(), ReleaseResponse.getDefaultInstance());

    private static <Q, A> A call(Channel channel, MethodDescriptor<Q, A> method, Q request) {
        return ClientCalls.blockingUnaryCall(channel, method, CallOptions.DEFAULT.withDeadlineAfter(TIMEOUT_S, TimeUnit.SECONDS), request);
    }

    private static Duration seconds(long seconds) {
        return Duration.newBuilder().setSeconds(seconds).build();
    }

    private static void pair(Channel channel, int number) {
        String leaseKey = UUID.randomUUID().toString();
        Scope scope = Scope.newBuilder().addNamespace("restart").setKey("java" + number).build();
        LeaseRef lease = LeaseRef.newBuilder().setScope(scope).setLeaseKey(leaseKey).build();
        call(channel, ACQUIRE, AcquireRequest.newBuilder().setScope(scope).setLeaseKey(leaseKey)
                .setDuration(seconds(30)).setWait(seconds(20)).build());
        call(channel, HEARTBEAT, HeartbeatRequest.newBuilder().addLeases(lease).build());
        call(channel, RELEASE, ReleaseRequest.newBuilder().addItems(ReleaseItem.newBuilder().setLease(lease)).build());
    }

    /** Both daemons behind one name. */
    private static final class Daemons extends NameResolverProvider {
        private final List<EquivalentAddressGroup> addresses = new ArrayList<>();

        Daemons(String targets) {
            for (String target : targets.split(",")) {
                String[] parts = target.split(":");
                addresses.add(new EquivalentAddressGroup(new InetSocketAddress(parts[0], Integer.parseInt(parts[1]))));
            }
        }

        @Override public String getDefaultScheme() {
            return "daemons";
        }

        @Override protected boolean isAvailable() {
            return true;
        }

        @Override protected int priority() {
            return 5;
        }

        @Override public NameResolver newNameResolver(URI target, NameResolver.Args arguments) {
            return new NameResolver() {
                @Override public String getServiceAuthority() {
                    return "127.0.0.1";
                }

                @Override public void start(Listener2 listener) {
                    listener.onResult(ResolutionResult.newBuilder().setAddresses(addresses).build());
                }

                @Override public void shutdown() {
                }
            };
        }
    }

    private static ManagedChannelBuilder<?> builder(String[] arguments) throws Exception {
        if (arguments.length == 2)
            return Grpc.newChannelBuilder("daemons:///all", InsecureChannelCredentials.create());
        TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder().trustManager(new File(arguments[2]));
        if (arguments.length > 3)
            tls.keyManager(new File(arguments[4]), new File(arguments[3]));
        return Grpc.newChannelBuilder("daemons:///all", tls.build());
    }

    private static ClientInterceptor token() {
        Metadata metadata = new Metadata();
        String token = System.getenv("LEASEHOLD_TEST_TOKEN");
        if (token != null && !token.isEmpty())
            metadata.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
        return MetadataUtils.newAttachHeadersInterceptor(metadata);
    }

    private static void fail(StatusRuntimeException error) {
        StringBuilder words = new StringBuilder("failed " + error.getMessage());
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause())
            words.append("; ").append(cause);
        System.out.println(words.toString().replaceAll("\\s+", " "));
    }

    private static void tell(String word) {
        StringBuilder line = new StringBuilder(word);
        for (int i = 0; i < WORKERS; i++)
            line.append(' ').append(pairs.get(i));
        System.out.println(line);
    }

    private static void work(Channel channel, int number) {
        while (!stopped) {
            try {
                pair(channel, number);
                pairs.incrementAndGet(number);
            } catch (StatusRuntimeException error) {
                fail(error);
            }
        }
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] arguments) throws Exception {
        boolean isOnce = arguments[0].equals("once");
        NameResolverRegistry.getDefaultRegistry().register(new Daemons(arguments[1]));
        ManagedChannelBuilder<?> builder = builder(arguments);
        if (!isOnce)
            builder.enableRetry().defaultServiceConfig(new Gson().fromJson(Files.readString(Path.of(arguments[0])), Map.class));
        ManagedChannel connection = builder.build();
        Channel channel = ClientInterceptors.intercept(connection, token());
        int status = 0;
        if (isOnce) {
            try {
                pair(channel, 0);
                System.out.println("ok pair");
            } catch (StatusRuntimeException error) {
                fail(error);
                status = 1;
            }
        } else {
            List<Thread> workers = new ArrayList<>();
            for (int i = 0; i < WORKERS; i++) {
                int number = i;
                workers.add(new Thread(() -> work(channel, number)));
                workers.get(i).start();
            }
            Thread end = new Thread(() -> {
                try {
                    System.in.readAllBytes();
                } catch (java.io.IOException error) {
                    System.out.println("failed " + error);
                }
                stopped = true;
            });
            end.setDaemon(true);
            end.start();
            while (!stopped) {
                tell("pairs");
                Thread.sleep(100);
            }
            for (Thread worker : workers)
                worker.join();
            tell("ended");
        }
        connection.shutdownNow().awaitTermination(TIMEOUT_S, TimeUnit.SECONDS);
        System.exit(status);
    }
}
