package clusters

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/certificates"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// rotationIn is the instruction of a plan that replaces certificates; nil for none.
func rotationIn(plan plans.Plan) *plans.Instruction {
	i := slices.IndexFunc(plan.Instructions, func(i plans.Instruction) bool { return i.Name == render.RestartInstruction })
	if i < 0 {
		return nil
	}
	return &plan.Instructions[i]
}

// rotated waits until the CertificateRotations of a namespace are those named, all succeeded.
func rotated(t *testing.T, namespace string, names ...string) {
	t.Helper()
	testenv.Until(t, fmt.Sprintf("the CertificateRotations %v to have succeeded", names), func() error {
		var list operationv1.CertificateRotationList
		if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var got []string
		for _, op := range list.Items {
			if op.Status.Phase != operationv1.PhaseSucceeded {
				return fmt.Errorf("%s: %+v", op.Name, op.Status)
			}
			got = append(got, op.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, names) {
			return fmt.Errorf("there are %v", got)
		}
		return nil
	})
}

// TestCertificateRotation: certificates are replaced by an instruction that is added to the delivered plan, when the Cluster asks for it,
// and when the agent reports one that ends soon.
func TestCertificateRotation(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "certs", nil)
	namespace, name := r.Cluster.Namespace, r.Cluster.Name
	m := r.Register("certs", "192.0.2.11", "etcd", "control-plane", "worker")
	before, checksum := m.AwaitPlan("")
	m.Take()
	m.Succeed()
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	testenv.Condition(t, env, controlPlane, rkev1.BootstrappedCondition, metav1.ConditionTrue, "")
	if slices.ContainsFunc(controlPlane.Status.Conditions,
		func(c metav1.Condition) bool { return c.Type == rkev1.CertificatesValidCondition }) {
		t.Error("there is a condition about certificates that nobody has reported")
	}

	// replace carries one rotation out.
	replace := func(arguments ...string) {
		t.Helper()
		var plan plans.Plan
		plan, checksum = m.AwaitPlan(checksum)
		i := rotationIn(plan)
		if i == nil || !slices.Equal(i.Args[len(i.Args)-len(arguments):], arguments) ||
			!reflect.DeepEqual(plan.Instructions[0], before.Instructions[0]) {
			t.Fatalf("the plan has the instructions %+v", plan.Instructions)
		}
		m.Take()
		m.Succeed()
		if plan, checksum = m.AwaitPlan(checksum); rotationIn(plan) != nil {
			t.Fatalf("the plan has the instructions %+v", plan.Instructions)
		}
		m.Take()
		m.Succeed()
	}
	// The agent reports a certificate that ends soon, in a cluster in which the hub may not do anything about it.
	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, rkev1.RenewCertificatesAnnotation, "false")
	})
	testenv.Until(t, "the annotation to reach the RKEControlPlane", func() error {
		env.Get(t, namespace, name, controlPlane)
		if got := controlPlane.Annotations[rkev1.RenewCertificatesAnnotation]; got != "false" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	now := time.Now().UTC().Truncate(time.Second)
	reports := func(end time.Time) {
		t.Helper()
		secret := m.Secret()
		base := secret.DeepCopy()
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, rkev1.AgentLastSeenAnnotation, time.Now().UTC().Format(time.RFC3339))
		if err := env.Client.Patch(t.Context(), secret, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
		m.Report(func(s *plans.Status, plan plans.Plan) {
			for probe := range plan.Probes {
				status := s.ProbeStatuses[probe]
				status.ServerCertificateNotAfter, status.ClientCertificateNotAfter = end, end
				s.ProbeStatuses[probe] = status
			}
		})
	}
	reports(now.AddDate(0, 0, 30))
	testenv.Condition(t, env, controlPlane, rkev1.CertificatesValidCondition, metav1.ConditionFalse, certificates.ReasonExpireSoon)
	rotated(t, namespace)
	expires := func(end time.Time) {
		t.Helper()
		testenv.Until(t, "Cluster API to know when the certificates end", func() error {
			var machines clusterv1.MachineList
			if err := env.Client.List(t.Context(), &machines, client.InNamespace(namespace)); err != nil {
				return err
			}
			if len(machines.Items) != 1 || !machines.Items[0].Status.CertificatesExpiryDate.Time.Equal(end) {
				return fmt.Errorf("%d Machines: %+v", len(machines.Items), machines.Items)
			}
			return nil
		})
		testenv.Until(t, "a metric to tell it", func() error {
			families, err := metrics.Registry.Gather()
			if err != nil {
				return err
			}
			for _, family := range families {
				for _, sample := range family.GetMetric() {
					if family.GetName() == "drover_cluster_certificates_expiry_timestamp_seconds" && sample.GetLabel()[0].GetValue() == name &&
						sample.GetGauge().GetValue() == float64(end.Unix()) {
						return nil
					}
				}
			}
			return fmt.Errorf("none tells that the certificates of %s end at %s", name, end)
		})
	}
	expires(now.AddDate(0, 0, 30))

	// Where the hub may, they are replaced.
	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) { delete(c.Annotations, rkev1.RenewCertificatesAnnotation) })
	replace("k3s", "certificate", "rotate")
	reports(now.AddDate(1, 0, 0))
	testenv.Condition(t, env, controlPlane, rkev1.CertificatesValidCondition, metav1.ConditionTrue, certificates.ReasonValid)
	expires(now.AddDate(1, 0, 0))
	renewal := name + "-renewal-" + now.Format("20060102")
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: renewal},
		&operationv1.CertificateRotation{}); err != nil {
		renewal = name + "-renewal-" + time.Now().UTC().Format("20060102") // the day has changed
	}
	rotated(t, namespace, renewal)

	// One in a file that ends soon is shown. The hub has just had all replaced, and does not do so again.
	m.Report(func(s *plans.Status, _ plans.Plan) {
		s.ProbeStatuses[plans.CertificateName("/var/lib/rancher/k3s/agent/client-kubelet.crt")] = plans.CertificateStatus(now.AddDate(0, 0, 20))
	})
	testenv.Condition(t, env, controlPlane, rkev1.CertificatesValidCondition, metav1.ConditionFalse, certificates.ReasonExpireSoon)
	expires(now.AddDate(0, 0, 20))
	rotated(t, namespace, renewal)

	// A user asks for it.
	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.RotateCertificates = &rkev1.RotateCertificates{Generation: 3, Services: []rkev1.CertificateService{"scheduler"}}
	})
	replace("k3s", "certificate", "rotate", "--service", "scheduler")
	rotated(t, namespace, name+"-certificates-3", renewal)
	testenv.Until(t, "the status to tell the generation", func() error {
		env.Get(t, namespace, name, controlPlane)
		if got := controlPlane.Status.CertificateRotationGeneration; got != 3 {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
	// One that cannot be carried out ends at once, and is not kept.
	wrong := &operationv1.CertificateRotation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "wrong"}}
	wrong.Spec.ClusterRef = operationv1.ClusterReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: name}
	wrong.Spec.Services = []operationv1.CertificateService{"rke2-server"}
	env.Create(t, wrong)
	env.Gone(t, wrong)
}

// TestCertificateRotationInTurn: etcd comes first, then the control plane, then workers, and each only when the one before is done.
func TestCertificateRotationInTurn(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "turns", nil)
	var machines []*testenv.FakeMachine
	for i, role := range []string{"etcd", "control-plane", "worker"} {
		machines = append(machines, r.Register("turns-"+role, fmt.Sprintf("192.0.2.%d", 30+i), role))
	}
	for _, m := range machines {
		m.AwaitPlan("")
		m.Take()
		m.Succeed()
	}
	op := &operationv1.CertificateRotation{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: "turns"}}
	op.Spec.ClusterRef = operationv1.ClusterReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: r.Cluster.Name}
	op.Spec.TTL = -1
	env.Create(t, op)
	// replacing reports whether a machine has a plan to replace certificates, and has not applied it.
	replacing := func(secret *corev1.Secret) bool {
		plan, err := plans.Decode(secret.Data[plans.KeyPlan])
		if err != nil {
			t.Fatal(err)
		}
		return rotationIn(plan) != nil && plans.State(secret.Data[plans.KeyPlanState]) != plans.StateSucceeded
	}
	var order []string
	testenv.Until(t, "all machines to have replaced their certificates", func() error {
		for _, m := range machines {
			secret := m.Secret()
			if plans.State(secret.Data[plans.KeyPlanState]) != plans.StatePending {
				continue
			}
			if replacing(secret) {
				order = append(order, m.Name)
				if others := slices.DeleteFunc(slices.Clone(machines), func(o *testenv.FakeMachine) bool {
					return o == m ||
						!replacing(o.Secret())
				}); len(others) > 0 {
					t.Errorf("%s replaces its certificates at the same time as %d others", m.Name, len(others))
				}
			}
			m.Apply(plans.Checksum(secret.Data[plans.KeyPlan]))
		}
		env.Get(t, op.Namespace, op.Name, op)
		if op.Status.Phase != operationv1.PhaseSucceeded {
			return fmt.Errorf("it is %+v", op.Status)
		}
		return nil
	})
	if want := []string{machines[0].Name, machines[1].Name, machines[2].Name}; !slices.Equal(order, want) {
		t.Errorf("the order was %v, not %v", order, want)
	}
}
