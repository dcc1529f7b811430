package clusters

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// configurationOf is the configuration of the distribution in a plan.
func configurationOf(t *testing.T, plan plans.Plan) string {
	t.Helper()
	for _, f := range plan.Files {
		if strings.HasSuffix(f.Path, "/config.yaml.d/50-rancher.yaml") {
			content, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil {
				t.Fatal(err)
			}
			return string(content)
		}
	}
	t.Fatal("the plan has no configuration")
	return ""
}

// TestTokenRotation: a server is given the new token, all machines get a configuration with it before any restarts, then the server
// restarts. The old tokens stay in the Secret.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "tokens", nil)
	m := r.Register("tokens1", "192.0.2.13", "etcd", "control-plane", "worker")
	_, first := m.AwaitPlan("")
	m.Take()
	m.Succeed()
	controlPlane := r.ControlPlane()
	testenv.Condition(t, env, controlPlane, rkev1.BootstrappedCondition, metav1.ConditionTrue, "")
	w := r.Register("tokens2", "192.0.2.14", "worker")
	workerPlan, second := w.AwaitPlan("")
	w.Take()
	w.Succeed()
	secret := &corev1.Secret{}
	r.Read(rkev1.ClusterStateSecretName(r.Cluster.Name), secret)
	server, agent := string(secret.Data["serverToken"]), string(secret.Data["agentToken"])
	if server == "" || !strings.Contains(configurationOf(t, workerPlan), agent) {
		t.Fatal("the worker has another token")
	}

	op := &operationv1.TokenRotation{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: "now"}}
	op.Spec.ClusterRef = operationv1.ClusterReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: r.Cluster.Name}
	op.Spec.TTL = -1
	env.Create(t, op)

	plan := awaitTask(t, m, &first, "rotate-token")
	r.Read(secret.Name, secret)
	fresh := string(secret.Data["newServerToken"])
	if fresh == "" || string(secret.Data["serverToken"]) != server || !strings.Contains(configurationOf(t, plan), server) {
		t.Fatalf("the Secret has %d keys; the configuration of the leader must have the old token", len(secret.Data))
	}
	i := plan.Instructions[len(plan.Instructions)-1]
	if strings.Contains(strings.Join(i.Args, " "), fresh) || !strings.Contains(strings.Join(i.Env, " "), "NEW_TOKEN="+fresh) {
		t.Errorf("the instruction has the arguments %q", i.Args)
	}
	m.Take()
	m.Succeed()

	restart := func(plan plans.Plan) string { return strings.Join(plan.Instructions[0].Env, " ") }
	before := restart(plan)
	plan = awaitTask(t, m, &first, "configure-token")
	if config := configurationOf(t, plan); !strings.Contains(config, fresh) || strings.Contains(config, server) || restart(plan) != before {
		t.Errorf("the configuration is %s, and the install instruction %s", config, restart(plan))
	}
	configured := awaitTask(t, w, &second, "configure-token")
	if config := configurationOf(t, configured); strings.Contains(config, agent) || restart(configured) != restart(workerPlan) {
		t.Errorf("the worker has the configuration %s, and %s", config, restart(configured))
	}
	m.Take()
	m.Succeed()
	w.Take()
	w.Succeed()
	plan = awaitTask(t, m, &first, "check-token")
	if restart(plan) == before || !strings.Contains(configurationOf(t, plan), fresh) {
		t.Error("the server does not restart with the new token")
	}
	m.Take()
	m.Succeed()
	testenv.Until(t, "the operation to succeed", func() error {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(op), op); err != nil {
			return err
		}
		if op.Status.Phase != operationv1.PhaseSucceeded {
			return fmt.Errorf("it is %q at %q: %+v", op.Status.Phase, op.Status.Step, op.Status.Conditions)
		}
		for _, c := range op.Status.Conditions {
			if strings.Contains(c.Message, fresh) || strings.Contains(c.Message, server) {
				t.Errorf("a token is in the condition %+v", c)
			}
		}
		return nil
	})
	r.Wait("the Secret to have the new token, and to keep the old ones", func() error {
		r.Read(secret.Name, secret)
		kept := 0
		for key, value := range secret.Data {
			if strings.HasPrefix(key, "serverToken-") && string(value) == server || strings.HasPrefix(key, "agentToken-") && string(value) == agent {
				kept++
			}
		}
		if string(secret.Data["serverToken"]) != fresh || len(secret.Data["newServerToken"]) != 0 || kept != 2 {
			return fmt.Errorf("%d old tokens are kept, of %d keys", kept, len(secret.Data))
		}
		return nil
	})
	// Then the worker restarts by a rollout.
	doTask(t, m, &first, "")
	if plan = doTask(t, w, &second, ""); strings.Contains(configurationOf(t, plan), agent) {
		t.Error("the worker has the old token")
	}
}
