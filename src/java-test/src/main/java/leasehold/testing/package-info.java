/** For tests of code that holds leases: {@link leasehold.testing.LeaseholdExtension} is the beginning. */
package leasehold.testing;
