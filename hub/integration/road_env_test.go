package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// roadCluster is a Cluster whose machines and agents are played by the test, and nothing else.
type roadCluster struct {
	t       *testing.T
	cluster *provisioningv1.Cluster
}

func newRoadCluster(t *testing.T, name string, config map[string]any) *roadCluster {
	t.Helper()
	r := &roadCluster{t: t, cluster: &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(t), Name: name},
		Spec:       provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", RKEConfig: &provisioningv1.RKEConfig{}},
	}}
	r.cluster.Spec.RKEConfig.MachineGlobalConfig.Data = config
	if err := env.Client.Create(t.Context(), r.cluster); err != nil {
		t.Fatalf("creating the Cluster: %v", err)
	}
	r.wait("the management namespace", func() error {
		r.read(r.cluster.Name, r.cluster)
		management := r.cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
		return env.Client.Get(t.Context(), client.ObjectKey{Name: management}, &corev1.Namespace{})
	})
	return r
}

// wait waits for something of the test's own or of the hub.
func (r *roadCluster) wait(what string, check func() error) {
	r.t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	r.t.Fatalf("waiting for %s: %v", what, err)
}

func (r *roadCluster) read(name string, into client.Object) {
	r.t.Helper()
	if err := env.Client.Get(r.t.Context(), client.ObjectKey{Namespace: r.cluster.Namespace, Name: name}, into); err != nil {
		r.t.Fatalf("reading %T %s: %v", into, name, err)
	}
}

// says waits until a condition has a status, a reason and a message.
func (r *roadCluster) says(object interface {
	client.Object
	conditions.Getter
}, conditionType string, status metav1.ConditionStatus, reason, message string) {
	r.t.Helper()
	r.wait(fmt.Sprintf("%T to say %s %s %s %q", object, conditionType, status, reason, message), func() error {
		if err := env.Client.Get(r.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		c := conditions.Get(object, conditionType)
		if c == nil || c.Status != status || c.Reason != reason || c.Message != message {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
}

func (r *roadCluster) controlPlane() *rkev1.RKEControlPlane {
	return &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: r.cluster.Namespace, Name: r.cluster.Name}}
}

// roadMachine is a machine whose agent the test plays.
type roadMachine struct {
	*roadCluster
	name string
}

// register registers a machine as the gateway does, and waits until its plan Secret is there.
func (r *roadCluster) register(id, address string, roles ...string) *roadMachine {
	r.t.Helper()
	headers := map[string][]string{rkev1.HeaderID: {id}, rkev1.HeaderDetectedAddress: {address}}
	for _, role := range roles {
		headers["role-"+role] = []string{"true"}
	}
	data, err := json.Marshal(headers)
	if err != nil {
		r.t.Fatal(err)
	}
	name := rkev1.MachineRequestName(id)
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.cluster.Annotations[rkev1.ManagementClusterNameAnnotation], Name: name},
		Type:       rkev1.MachineRequestSecretType,
		Data:       map[string][]byte{rkev1.MachineRequestDataKey: data},
	}
	if err := env.Client.Create(r.t.Context(), request); err != nil {
		r.t.Fatalf("creating the machine request: %v", err)
	}
	m := &roadMachine{roadCluster: r, name: name}
	r.wait("the plan Secret of "+id, func() error {
		return env.Client.Get(r.t.Context(), client.ObjectKey{Namespace: r.cluster.Namespace, Name: rkev1.PlanSecretName(name)}, &corev1.Secret{})
	})
	return m
}

func (m *roadMachine) secret() *corev1.Secret {
	m.t.Helper()
	secret := &corev1.Secret{}
	m.read(rkev1.PlanSecretName(m.name), secret)
	return secret
}

// awaitPlan waits until a pending plan is delivered that differs from the last one, and returns it.
func (m *roadMachine) awaitPlan(last string) (plan plans.Plan, checksum string) {
	m.t.Helper()
	m.wait("a plan for "+m.name, func() error {
		secret := m.secret()
		raw := secret.Data[plans.KeyPlan]
		checksum = plans.Checksum(raw)
		if len(raw) == 0 || checksum == last || string(secret.Data[plans.KeyPlanState]) != string(plans.StatePending) {
			return fmt.Errorf("plan of %d bytes, state %q", len(raw), secret.Data[plans.KeyPlanState])
		}
		var err error
		plan, err = plans.Decode(raw)
		return err
	})
	return plan, checksum
}

// report writes into the plan Secret as an agent does.
func (m *roadMachine) report(set func(*plans.Status, plans.Plan)) {
	m.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret := m.secret()
		status, err := plans.DecodeStatus(secret.Data)
		if err != nil {
			return err
		}
		plan, err := plans.Decode(secret.Data[plans.KeyPlan])
		if err != nil {
			return err
		}
		set(&status, plan)
		if err := status.WriteTo(secret.Data); err != nil {
			return err
		}
		return env.Client.Update(m.t.Context(), secret)
	})
	if err != nil {
		m.t.Fatalf("reporting for %s: %v", m.name, err)
	}
}

func (m *roadMachine) take() {
	m.t.Helper()
	m.report(func(s *plans.Status, _ plans.Plan) { s.State, s.Revision = plans.StateInProgress, s.Revision+1 })
}

// succeed reports the plan as applied, and all probes healthy but those named.
func (m *roadMachine) succeed(unhealthy ...string) {
	m.t.Helper()
	raw := m.secret().Data[plans.KeyPlan]
	m.report(func(s *plans.Status, plan plans.Plan) {
		s.State, s.AppliedChecksum, s.FailedChecksum, s.FailureCount, s.SuccessCount = plans.StateSucceeded, plans.Checksum(raw), "", 0, s.SuccessCount+1
		s.ProbeStatuses = map[string]plans.ProbeStatus{}
		for name := range plan.Probes {
			s.ProbeStatuses[name] = plans.ProbeStatus{Healthy: !slices.Contains(unhealthy, name)}
		}
	})
}

func (m *roadMachine) fail() {
	m.t.Helper()
	raw := m.secret().Data[plans.KeyPlan]
	m.report(func(s *plans.Status, _ plans.Plan) {
		s.State, s.FailedChecksum, s.FailureCount = plans.StateFailed, plans.Checksum(raw), s.FailureCount+1
	})
}
