package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/servingcert"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// awaitSigned waits for a plan and checks that it is signed for its machine by the key that the machine got when it registered.
func (e *gatewayEnv) awaitSigned(registered string, name types.NamespacedName) {
	e.t.Helper()
	var connection struct {
		PlanSigningKey []byte `json:"planSigningKey"` // base64, as JSON has bytes
	}
	if err := json.Unmarshal([]byte(registered), &connection); err != nil || len(connection.PlanSigningKey) == 0 {
		e.t.Fatalf("the machine gets no key: %v", err)
	}
	secret := &corev1.Secret{}
	eventually(e.t, "a signed plan", func() error {
		if err := e.client.Get(e.t.Context(), name, secret); err != nil {
			return err
		}
		if len(secret.Data[plans.KeyPlan]) == 0 {
			return errors.New("there is no plan")
		}
		signature, err := plans.Verify(connection.PlanSigningKey, secret.Data[plans.KeyPlanSignature], plans.Checksum(secret.Data[plans.KeyPlan]),
			name.String())
		if err == nil && time.Since(time.UnixMilli(signature.Sequence)).Abs() > time.Hour {
			err = fmt.Errorf("the sequence %d is not the time", signature.Sequence)
		}
		return err
	})
	// Without a change the hub leaves the signature alone.
	eventually(e.t, "the plan to be left alone", func() error {
		if err := e.client.Get(e.t.Context(), name, secret); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		again := &corev1.Secret{}
		if err := e.client.Get(e.t.Context(), name, again); err != nil {
			return err
		}
		if string(again.Data[plans.KeyPlan]) != string(secret.Data[plans.KeyPlan]) {
			return errors.New("there is another one")
		}
		if string(again.Data[plans.KeyPlanSignature]) != string(secret.Data[plans.KeyPlanSignature]) {
			e.t.Error("the plan is signed again and again")
		}
		return nil
	})
}

// registerKnown registers with the stored identity and no token.
func (e *gatewayEnv) registerKnown(id, secret string) (int, string) {
	headers := map[string]string{"X-Cattle-Id": id}
	if secret != "" {
		headers["X-Cattle-Machine-Secret"] = secret
	}
	return e.get("/v3/connect/agent", headers)
}

// TestGatewayKnownMachine: a machine that the hub knows gets its connection info again without a token; nobody else gets it.
func TestGatewayKnownMachine(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()
	secret := "known-machine-" + e.namespace
	code, first := e.register(e.token, "known-1", secret)
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, first)
	}
	eventually(t, "the machine to be known", func() error {
		if code, again := e.registerKnown("known-1", secret); code != http.StatusOK || again != first {
			return fmt.Errorf("%d %s", code, again)
		}
		return nil
	})
	for name, test := range map[string]struct {
		id, secret string
		code       int
		want       string
	}{
		"another's secret": {"known-1", secret + "X", http.StatusUnauthorized, "no machine with this id and secret is known here"},
		"never seen": {"known-2", "known-machine-2-23456789abcdef", http.StatusUnauthorized,
			"no machine with this id and secret is known here"},
		"no secret":    {"known-1", "", http.StatusUnauthorized, "the registration token is missing"},
		"short secret": {"known-1", "short", http.StatusBadRequest, "X-Cattle-Machine-Secret"},
		"no id":        {"", secret, http.StatusBadRequest, "X-Cattle-Id"},
	} {
		if code, body := e.registerKnown(test.id, test.secret); code != test.code || !strings.Contains(body, test.want) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if err := e.client.Get(t.Context(), types.NamespacedName{Namespace: e.namespace, Name: rkev1.MachineRequestName("known-2")},
		&clusterv1.Machine{}); err == nil {
		t.Error("a machine without a token was added")
	}
	// A machine that was copied is told apart from no other, and so neither gets anything.
	hash := sha256.Sum256([]byte(secret))
	copied := e.createMachine(t.Context(), "copy", hex.EncodeToString(hash[:]))
	label := func(value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, rkev1.MachineIDLabel, value)
		if err := e.client.Patch(t.Context(), copied, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	label(fmt.Sprintf("%q", rkev1.MachineIDLabelValue("known-1")))
	eventually(t, "both to be refused", func() error {
		if code, body := e.registerKnown("known-1", secret); code != http.StatusConflict ||
			!strings.Contains(body, "2 machines are registered with this id and secret") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	// One that knows no id gives way to one of the id, and is found where there is none.
	label("null")
	eventually(t, "the machine of the id", func() error {
		if code, again := e.registerKnown("known-1", secret); code != http.StatusOK || again != first {
			return fmt.Errorf("%d %s", code, again)
		}
		return nil
	})
	if err := e.client.Delete(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	// Only the machine itself learns that it was deleted.
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: rkev1.MachineRequestName("known-1")}}
	if err := e.client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine to be told", func() error {
		if code, body := e.registerKnown("known-1", secret); code != http.StatusGone ||
			!strings.Contains(body, "has been deleted; run the install script") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	// Guessing is slowed down before anything is looked up.
	limited := false
	for i := range 200 {
		if code, _ := e.registerKnown("known-1", fmt.Sprintf("guess-%032d", i)); code == http.StatusTooManyRequests {
			limited = true
			break
		}
	}
	if !limited {
		t.Error("secrets can be guessed without limit")
	}
}

// identity writes the files that the install script would write for the agent.
func (a *agentProcess) identity(id string) {
	a.write("cattle-id", id+"\n")
	a.write("machine-secret", machineSecret+"\n")
}

func (a *agentProcess) logHas(text string) func() error {
	return func() error {
		if !strings.Contains(a.read("log"), text) {
			return fmt.Errorf("it does not say %q", text)
		}
		return nil
	}
}

// TestAgentRegistersAgain deletes the agent's ServiceAccount, as a restore or a clean-up might, and then its Machine.
func TestAgentRegistersAgain(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()
	id := "again-" + e.namespace
	a := startAgent(t, e, id)
	a.identity(id)
	eventually(t, "the agent", a.logHas("Agent started"))
	before := a.read("rancher2_connection_info.json")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.key.Namespace, Name: a.key.Name}}
	for _, object := range []client.Object{account, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: a.key.Namespace, Name: rkev1.PlanTokenSecretName(rkev1.MachineRequestName(id))}}} {
		if err := client.IgnoreNotFound(e.client.Delete(t.Context(), object)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the objects to be created again", func() error {
		e.createMachine(t.Context(), rkev1.MachineRequestName(id), "")
		return e.client.Get(t.Context(), client.ObjectKeyFromObject(account), &corev1.ServiceAccount{})
	})
	eventually(t, "the agent to have a new token", a.logHas("Registered again after the hub refused"))
	if now := a.read("rancher2_connection_info.json"); now == before || !strings.Contains(now, `"planSigningKey"`) {
		t.Error("the connection info is as before, or lost the key")
	}
	checksum := a.deliver(plans.Plan{Instructions: []plans.Instruction{shell("echo", "echo again")}})
	if got := a.until(plans.StateSucceeded); got.AppliedChecksum != checksum {
		t.Errorf("got %+v", got)
	}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: rkev1.MachineRequestName(id)}}
	for _, object := range []client.Object{machine, account} {
		if err := e.client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the agent to be told", a.logHas("has been deleted; run the install script"))
}

// TestAgentAuthorityRotation rotates the gateway's authority while one agent runs and another is stopped.
func TestAgentAuthorityRotation(t *testing.T) {
	t.Parallel()
	e := newGateway(t, apiServer(t))
	e.system = newNamespace(t)
	e.createCluster()
	e.serve()
	e.runControllers()
	awake, asleep := startAgent(t, e, "rotate-1"), startAgent(t, e, "rotate-2")
	for _, a := range []*agentProcess{awake, asleep} {
		eventually(t, "the agent", a.logHas("Agent started"))
	}
	asleep.end(syscall.SIGTERM)
	old := string(e.settings.CACerts)
	apply := func(a *agentProcess, text string) {
		t.Helper()
		a.deliver(plans.Plan{Instructions: []plans.Instruction{shell("echo", "echo "+text)}})
		if got := a.until(plans.StateSucceeded); string(got.AppliedOutput["echo"]) != text+"\n" {
			t.Errorf("%s: got %+v", text, got)
		}
		eventually(t, "the authorities of "+text, func() error {
			config, _, _ := machineConfig(t, a.read("rancher2_connection_info.json"))
			if string(config.CAData) != string(e.settings.CACerts) {
				return errors.New("they are others")
			}
			return nil
		})
	}
	apply(awake, "before")
	for _, step := range []struct {
		name  string
		count int
	}{{servingcert.RotationPrepare, 2}, {servingcert.RotationSwitch, 2}, {servingcert.RotationFinish, 1}} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.system, Name: servingcert.SecretName}}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, servingcert.CARotationAnnotation, step.name)
		if err := e.client.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		e.stop()
		<-e.stopped
		e.serve()
		if count := strings.Count(string(e.settings.CACerts), "BEGIN CERTIFICATE"); count != step.count {
			t.Errorf("%s: %d authorities are handed out", step.name, count)
		}
		apply(awake, step.name)
	}
	if strings.Contains(string(e.settings.CACerts), strings.TrimSpace(old)) {
		t.Error("the old authority is still handed out")
	}
	asleep.start()
	apply(asleep, "awake again")
}

// change changes the plan Secret and retries conflicts with the hub and the agent.
func (a *agentProcess) change(do func(*corev1.Secret)) {
	a.t.Helper()
	testenv.OnConflict(a.t, "changing the plan Secret", func() error {
		secret := a.secret()
		do(secret)
		return a.env.client.Update(a.t.Context(), secret)
	})
}

// reported is what the agent has written into the plan Secret.
func (a *agentProcess) reported() map[string]string {
	a.t.Helper()
	data, out := a.secret().Data, map[string]string{}
	for _, key := range plans.AgentKeys() {
		out[key] = string(data[key])
	}
	return out
}

// TestAgentVerifiesSignatures delivers plans with and without the hub's signature.
func TestAgentVerifiesSignatures(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()
	signer, err := signing.Ensure(t.Context(), e.client, e.system)
	if err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, e, "enforce-1")
	a.end(syscall.SIGTERM)
	a.write("config.yaml", a.read("config.yaml")+"planSignatures: enforce\n")
	a.start()
	deliver := func(name string, sign bool) (signature []byte, checksum string) {
		t.Helper()
		plan := plans.Plan{Instructions: []plans.Instruction{shell(name, "echo "+name+" >>"+a.path("ran"))}}
		raw, err := plan.Encode()
		if err != nil {
			t.Fatal(err)
		}
		a.change(func(secret *corev1.Secret) {
			previous := plans.SecretData{plans.KeyPlan: secret.Data[plans.KeyPlan], plans.KeyPlanSignature: secret.Data[plans.KeyPlanSignature]}
			plans.Deliver(secret.Data, raw, 1, 1)
			if sign {
				if err := signer.Sign(secret.Data, previous, a.key.String()); err != nil {
					t.Fatal(err)
				}
			}
			signature = secret.Data[plans.KeyPlanSignature]
		})
		return signature, plans.Checksum(raw)
	}
	still := func(what string) {
		t.Helper()
		before := a.reported()
		time.Sleep(3 * time.Second)
		if got := a.status(); got.State != plans.StatePending || !maps.Equal(a.reported(), before) {
			t.Errorf("%s is taken: %+v", what, got)
		}
	}
	first, checksum := deliver("first", true)
	if got := a.until(plans.StateSucceeded); got.AppliedChecksum != checksum {
		t.Errorf("got %+v", got)
	}
	// The agent has started, and sees what comes from now on.
	deliver("unsigned", false)
	still("a plan without a signature")
	deliver("second", true)
	a.until(plans.StateSucceeded)
	// Somebody puts the first plan back, with its signature.
	plan, err := plans.Plan{Instructions: []plans.Instruction{shell("first", "echo first >>"+a.path("ran"))}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	a.change(func(secret *corev1.Secret) {
		plans.Deliver(secret.Data, plan, 1, 1)
		secret.Data[plans.KeyPlanSignature] = first
	})
	still("a replay")
	if ran := a.read("ran"); ran != "first\nsecond\n" {
		t.Errorf("ran %q", ran)
	}
}
