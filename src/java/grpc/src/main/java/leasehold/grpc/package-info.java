/** Leases of daemons over gRPC, by {@link leasehold.LeaseClient}. */
package leasehold.grpc;
