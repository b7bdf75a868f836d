package leasehold.testing;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Gives each test a {@link World} of its own. The first one starts a daemon with an embedded PostgreSQL: that of the environment's LEASEHOLDD, else
 * leaseholdd in PATH. It ends when the process ends, also when that is killed.
 *
 * <pre>{@code
 * @ExtendWith(LeaseholdExtension.class)
 * class InvoiceTest {
 *     @Test
 *     void work_stops_when_its_lease_is_lost(World world) throws Exception {
 *         try (LeaseClient client = LeaseClient.create(world.url())) { // or LeaseClient.builder(Daemons.at(world.server())).build()
 *             Lease lease = client.lease(world.namespace(), "invoice-42").acquire();
 *             world.lose("invoice-42");
 *         }
 *     }
 * }
 * }</pre>
 */
public final class LeaseholdExtension implements ParameterResolver, AfterEachCallback {
    private static final ExtensionContext.Namespace NAMESPACE = ExtensionContext.Namespace.create(LeaseholdExtension.class);

    /** JUnit makes it. */
    public LeaseholdExtension() {
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == World.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        World world = new World(Daemon.running());
        worlds(context).all.add(world);
        return world;
    }

    @Override
    public void afterEach(ExtensionContext context) {
        worlds(context).all.forEach(World::close);
    }

    private static final class Worlds {
        final List<World> all = new ArrayList<>();
    }

    private static Worlds worlds(ExtensionContext context) {
        return context.getStore(NAMESPACE).getOrComputeIfAbsent(context.getUniqueId(), unused -> new Worlds(), Worlds.class);
    }
}
