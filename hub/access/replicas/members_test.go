package replicas

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// leaseOf returns a Lease as another replica has written it, with its own clock.
func leaseOf(id, address string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "cattle-system", Name: leaseName(id),
			Labels: map[string]string{ReplicaLabel: "true"}, Annotations: map[string]string{AddressAnnotation: address},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(id), RenewTime: ptr.To(metav1.NewMicroTime(renewed))},
	}
}

// TestLeasesOfReplicas: with clocks that are hours apart, only renewals of a Lease count.
func TestLeasesOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{Local: &sessions{keys: map[string]bool{}}, ReplicaID: "a"})
		m := &Membership{Directory: d, Namespace: "cattle-system"}
		early, late := time.Now().Add(-3*time.Hour), time.Now().Add(3*time.Hour)
		expect := func(when string, want ...Member) {
			t.Helper()
			m.updateMembers()
			if diff := cmp.Diff(append([]Member{}, want...), d.members); diff != "" {
				t.Errorf("%s, the replicas are (-want +got):\n%s", when, diff)
			}
		}
		b, c := Member{"b", "10.0.0.2:8443"}, Member{"c", "10.0.0.3:8443"}

		m.observe(leaseOf("b", b.Address, early), false)
		m.observe(leaseOf("c", c.Address, late), false)
		expect("when two have been seen", b, c)

		other := leaseOf("node", "10.0.0.4:8443", late)
		other.Labels = nil
		m.observe(other, false)
		other = leaseOf("elsewhere", "10.0.0.5:8443", late)
		other.Namespace = "default"
		m.observe(other, false)
		m.observe(leaseOf("nowhere", "", late), false)
		expect("when there are Leases of others, and one without an address", b, c)

		time.Sleep(leaseDuration - time.Second)
		m.observe(leaseOf("b", b.Address, early.Add(leaseDuration)), false)
		m.observe(leaseOf("c", c.Address, late), false) // seen again, as after a reconnect, but not renewed
		time.Sleep(2 * time.Second)
		expect("when one has not renewed its Lease", b)

		m.observe(leaseOf("c", "10.0.0.9:8443", late.Add(time.Minute)), false)
		expect("when it has, with another address", b, Member{"c", "10.0.0.9:8443"})

		m.observe(toolscache.DeletedFinalStateUnknown{Obj: leaseOf("b", b.Address, early)}, true)
		expect("when one has removed its Lease", Member{"c", "10.0.0.9:8443"})
	})
}

func TestLease(t *testing.T) {
	m := &Membership{Directory: New(Options{Local: &sessions{keys: map[string]bool{}}, ReplicaID: "a-x1"}), Namespace: "cattle-system",
		Address: "10.0.0.1:8443"}
	lease := m.lease()
	if lease.Name != "drover-replica-a-x1" || ptr.Deref(lease.Spec.HolderIdentity, "") != "a-x1" ||
		lease.Annotations[AddressAnnotation] != "10.0.0.1:8443" || lease.Labels[ReplicaLabel] == "" {
		t.Errorf("others would not find this replica by its Lease: %+v", lease)
	}
}
