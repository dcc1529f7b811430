package rkecontrolplane

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/plans"
)

// shelf lists objects as the manager's cache does: copies of what it holds, but where no copies are asked for.
type shelf struct {
	client.Reader
	machines   clusterv1.MachineList
	bootstraps rkev1.RKEBootstrapList
	secrets    corev1.SecretList
}

func (s *shelf) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := &client.ListOptions{}
	o.ApplyOptions(opts)
	own := ptr.Deref(o.UnsafeDisableDeepCopy, false)
	switch list := list.(type) {
	case *clusterv1.MachineList:
		if list.Items = slices.Clone(s.machines.Items); !own {
			s.machines.DeepCopyInto(list)
		}
	case *rkev1.RKEBootstrapList:
		if list.Items = slices.Clone(s.bootstraps.Items); !own {
			s.bootstraps.DeepCopyInto(list)
		}
	case *corev1.SecretList:
		if list.Items = slices.Clone(s.secrets.Items); !own {
			s.secrets.DeepCopyInto(list)
		}
	}
	return nil
}

// controlPlaneKey is that of bigCluster.
var controlPlaneKey = client.ObjectKey{Namespace: "fleet", Name: "c"}

// bigCluster is a cluster at rest with three servers and otherwise workers.
func bigCluster(tb testing.TB, machines int) (*Reconciler, *shelf, func() *scope) {
	tb.Helper()
	found, err := release.Lookup("v1.36.3+k3s1")
	if err != nil {
		tb.Fatal(err)
	}
	in := &shelf{}
	for i := range machines {
		name := fmt.Sprintf("m%04d", i)
		meta := metav1.ObjectMeta{Namespace: "fleet", Name: name, UID: types.UID(name), Labels: map[string]string{rkev1.WorkerRoleLabel: "true"}}
		if i < 3 {
			meta.Labels = map[string]string{rkev1.EtcdRoleLabel: "true", rkev1.ControlPlaneRoleLabel: "true"}
		}
		m := clusterv1.Machine{ObjectMeta: meta}
		m.Spec.ClusterName = "c"
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap",
			Name: name}
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "LabMachine",
			Name: name}
		m.Spec.ProviderID = "lab://" + name
		m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)}}
		m.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
		in.machines.Items = append(in.machines.Items, m)
		bootstrap := rkev1.RKEBootstrap{ObjectMeta: meta}
		bootstrap.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&m, clusterv1.GroupVersion.WithKind("Machine"))}
		in.bootstraps.Items = append(in.bootstraps.Items, bootstrap)
		secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "fleet", Name: rkev1.PlanSecretName(name),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))},
		}, Type: rkev1.MachinePlanSecretType, Data: map[string][]byte{}}
		if i == 0 {
			secret.Labels = map[string]string{rkev1.InitNodeLabel: "true"}
		}
		if i < 3 {
			address := "10.0.0." + fmt.Sprint(i+1)
			secret.Annotations = map[string]string{rkev1.JoinURLAnnotation: "https://" + address + ":6443",
				rkev1.ReportedJoinAddressAnnotation: address}
		}
		in.secrets.Items = append(in.secrets.Items, secret)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		tb.Fatal(err)
	}
	r := &Reconciler{Cache: in, Live: in, Now: time.Now, Signer: signing.New(key, time.Now)}
	next := func() *scope {
		s := &scope{controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlaneKey.Namespace,
			Name: controlPlaneKey.Name}},
			cluster: &clusterv1.Cluster{}, release: found, plans: r.plans.of(controlPlaneKey)}
		s.controlPlane.Spec.KubernetesVersion = "v1.36.3+k3s1"
		s.cluster.Name, s.tokens = "c", render.Tokens{Server: "server", Agent: "agent"}
		return s
	}
	s := next()
	if err := r.reconcileInMemory(s); err != nil {
		tb.Fatal(err)
	}
	for i, m := range s.machines {
		data := in.secrets.Items[i].Data
		plans.Deliver(data, m.encoded, plans.Unlimited, m.inputs.FailureThreshold())
		status := plans.Status{State: plans.StateSucceeded, Revision: 1, AppliedChecksum: plans.Checksum(m.encoded),
			ProbeStatuses: map[string]plans.ProbeStatus{}}
		for probe := range m.plan.Probes {
			status.ProbeStatuses[probe] = plans.ProbeStatus{Healthy: true}
		}
		if err := status.WriteTo(data); err != nil {
			tb.Fatal(err)
		}
		data[plans.KeyAppliedPlan] = data[plans.KeyPlan]
		meta := &in.secrets.Items[i].ObjectMeta
		if err := r.Signer.Sign(data, nil, meta.Namespace+"/"+meta.Name); err != nil {
			tb.Fatal(err)
		}
		metav1.SetMetaDataAnnotation(meta, rkev1.JoinedToAnnotation, m.joinURL)
		meta.UID, meta.ResourceVersion = types.UID(meta.Name), "1"
	}
	return r, in, next
}

// reconcileInMemory is what a reconcile does beside requests: it loads, elects, renders, decides, and makes the status.
func (r *Reconciler) reconcileInMemory(s *scope) error {
	if err := r.loadMachines(context.Background(), s); err != nil {
		return err
	}
	if err := r.plan(context.Background(), s); err != nil {
		return err
	}
	setStatus(s, nil)
	return nil
}

// reconcileAtRest is what a reconcile does of a cluster at rest: it compares the plan Secrets too, of which it need write none.
func (r *Reconciler) reconcileAtRest(s *scope) error {
	return errors.Join(r.reconcileInMemory(s), r.deliver(context.Background(), s))
}

// TestPassAtRest: what BenchmarkPass measures has nothing to deliver.
func TestPassAtRest(t *testing.T) {
	r, _, next := bigCluster(t, 20)
	s := next()
	if err := r.reconcileAtRest(s); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.machines {
		if m.decision.Deliver || m.decision.Drain != "" || m.decision.Uncordon || !m.decision.Done {
			t.Errorf("%s: %+v", m.machine.Name, m.decision)
		}
	}
}

func BenchmarkPass(b *testing.B) {
	for _, machines := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(machines), func(b *testing.B) {
			r, _, next := bigCluster(b, machines)
			b.ReportAllocs()
			for b.Loop() {
				if err := r.reconcileAtRest(next()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
