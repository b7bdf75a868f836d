/** Leases in OpenTelemetry. */
package leasehold.opentelemetry;
