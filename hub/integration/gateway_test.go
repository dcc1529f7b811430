package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/servingcert"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
)

const machineSecret = "0123456789abcdef0123456789abcdef"

// TestGatewayReplicasShareIdentity starts replicas at the same moment: all use the same authority and a certificate that is valid for each.
func TestGatewayReplicasShareIdentity(t *testing.T) {
	t.Parallel()
	config := apiServer(t)
	c, err := client.New(config, client.Options{Scheme: gatewayScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	namespace := newNamespace(t)
	const replicas = 8
	authorities := make([]string, replicas)
	var wg sync.WaitGroup
	for i := range replicas {
		wg.Go(func() {
			s := settings.Settings{ServerURL: "https://hub.example", SystemNamespace: namespace}
			identity, err := servingcert.Ensure(t.Context(), c, s, "192.0.2."+string(rune('1'+i))+":8443")
			if err != nil {
				t.Error(err)
				return
			}
			authorities[i] = string(identity.CACerts())
		})
	}
	wg.Wait()
	for _, authority := range authorities {
		if authority == "" || authority != authorities[0] {
			t.Errorf("replicas have several authorities")
		}
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: servingcert.SecretName}
	if err := c.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	before := secret.ResourceVersion
	if _, err := servingcert.Ensure(t.Context(), c, settings.Settings{ServerURL: "https://hub.example", SystemNamespace: namespace},
		"192.0.2.1:8443"); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, secret); err != nil || secret.ResourceVersion != before {
		t.Errorf("a restarted replica writes the Secret again: %v", err)
	}
	// A damaged authority is an error, and stays as it is.
	secret.Data["ca.key"] = []byte("damaged")
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	_, err = servingcert.Ensure(t.Context(), c, settings.Settings{ServerURL: "https://hub.example", SystemNamespace: namespace}, ":8443")
	if err == nil || !strings.Contains(err.Error(), "which machines trust and which is therefore not replaced") {
		t.Errorf("with a damaged authority: %v", err)
	}
}

func TestGatewayRegistration(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()

	t.Run("wrong token", func(t *testing.T) {
		if code, body := e.register("wrong", "m1", machineSecret); code != http.StatusUnauthorized || !strings.Contains(body, "unknown") {
			t.Errorf("%d %s", code, body)
		}
	})
	t.Run("bad header", func(t *testing.T) {
		code, body := e.get("/v3/connect/agent", map[string]string{
			"Authorization": "Bearer " + e.token, "X-Cattle-Id": "m1", "X-Cattle-Role-Worker": "true",
			"X-Cattle-Labels": "rke.cattle.io/init-node=true",
		})
		if code != http.StatusBadRequest || !strings.HasPrefix(body, "X-Cattle-Labels: the label rke.cattle.io/init-node") {
			t.Errorf("%d %s", code, body)
		}
	})
	t.Run("no role", func(t *testing.T) {
		if code, body := e.get("/v3/connect/agent",
			map[string]string{"Authorization": "Bearer " + e.token, "X-Cattle-Id": "m1"}); code != http.StatusBadRequest {
			t.Errorf("%d %s", code, body)
		}
	})
	var first string
	t.Run("first time", func(t *testing.T) {
		code, body := e.register(e.token, "m1", machineSecret)
		if code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		first = body
		_, namespace, name := machineConfig(t, body)
		if namespace != e.namespace || name != rkev1.PlanSecretName(rkev1.MachineRequestName("m1")) {
			t.Errorf("plan Secret %s/%s", namespace, name)
		}
		var requests corev1.SecretList
		if err := e.client.List(t.Context(), &requests, client.InNamespace(e.management)); err != nil {
			t.Fatal(err)
		}
		for _, secret := range requests.Items {
			if secret.Type == rkev1.MachineRequestSecretType {
				t.Errorf("the machine request %s is still there", secret.Name)
			}
		}
	})
	t.Run("again", func(t *testing.T) {
		if code, body := e.register(e.token, "m1", machineSecret); code != http.StatusOK || body != first {
			t.Errorf("%d %s", code, body)
		}
	})
	for name, secret := range map[string]string{"takeover": "another secret, long enough", "takeover without secret": ""} {
		t.Run(name, func(t *testing.T) {
			if code, body := e.register(e.token, "m1", secret); code != http.StatusUnauthorized || !strings.Contains(body, "registered already") {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	t.Run("without secret", func(t *testing.T) {
		if code, body := e.register(e.token, "old-style", ""); code != http.StatusOK {
			t.Errorf("%d %s", code, body)
		}
		if code, body := e.register(e.token, "old-style", ""); code != http.StatusUnauthorized {
			t.Errorf("the second time: %d %s", code, body)
		}
	})
	t.Run("two at once with one id", func(t *testing.T) {
		codes := make([]int, 6)
		var wg sync.WaitGroup
		for i := range codes {
			wg.Go(func() { codes[i], _ = e.register(e.token, "contested", strings.Repeat(string(rune('a'+i)), 20)) })
		}
		wg.Wait()
		won := 0
		for _, code := range codes {
			if code == http.StatusOK {
				won++
			} else if code != http.StatusUnauthorized {
				t.Errorf("answers %v", codes)
			}
		}
		if won != 1 {
			t.Errorf("%d of them got the machine's credentials: %v", won, codes)
		}
	})
}

// TestGatewayWaitsForControllers: a registration waits for the controllers; a machine that does not wait, or is refused, gets the right
// code.
func TestGatewayWaitsForControllers(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	type answer struct {
		code int
		body string
	}
	answers := make(chan answer, 1)
	go func() {
		code, body := e.register(e.token, "slow", machineSecret)
		answers <- answer{code, body}
	}()
	request := &corev1.Secret{}
	find := func() error {
		return e.client.Get(t.Context(), types.NamespacedName{Namespace: e.management, Name: rkev1.MachineRequestName("slow")}, request)
	}
	eventually(t, "the machine request", find)
	if data := string(request.Data[rkev1.MachineRequestDataKey]); strings.Contains(data, machineSecret) ||
		!strings.Contains(data, `"role-worker":["true"]`) {
		t.Errorf("request %s", data)
	}
	select {
	case a := <-answers:
		t.Fatalf("answered before the Machine was there: %v", a)
	case <-time.After(300 * time.Millisecond):
	}
	e.provideMachine(t.Context(), request)
	if a := <-answers; a.code != http.StatusOK {
		t.Errorf("%v", a)
	}

	go func() {
		code, body := e.register(e.token, "slow2", machineSecret)
		answers <- answer{code, body}
	}()
	eventually(t, "the second machine request", func() error {
		return e.client.Get(t.Context(), types.NamespacedName{Namespace: request.Namespace, Name: rkev1.MachineRequestName("slow2")}, request)
	})
	patch := `{"metadata":{"annotations":{"` + rkev1.MachineRequestErrorAnnotation + `":"the cluster is full"}}}`
	if err := e.client.Patch(t.Context(), request, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	if a := <-answers; a.code != http.StatusConflict || a.body != "the cluster is full" {
		t.Errorf("%v", a)
	}
}

// TestGatewayBootstrapToken registers a machine that an infrastructure provider has created.
func TestGatewayBootstrapToken(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	bootstrap := e.createProvisioned("made")
	token := tokens.NewBootstrapToken(client.ObjectKeyFromObject(bootstrap))
	annotate := func(key, value string, object client.Object) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
		if err := e.client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	plan := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: rkev1.PlanSecretName("made")}}
	// Whoever may create Secrets can copy the hash, name the RKEBootstrap in a label, and have a machine of his own.
	e.createProvisioned("theirs")
	annotate(rkev1.BootstrapTokenHashAnnotation, tokens.BootstrapTokenHash(token),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: rkev1.PlanSecretName("theirs")}})
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "copied",
		Labels:      map[string]string{rkev1.BootstrapNameLabel: "made"},
		Annotations: map[string]string{rkev1.BootstrapTokenHashAnnotation: tokens.BootstrapTokenHash(token)},
	}, Type: rkev1.MachinePlanSecretType})
	headers := map[string]string{"Authorization": "Bearer " + token, "X-Cattle-Id": "made", "X-Cattle-Machine-Secret": machineSecret}
	expect := func(what string, wantCode int, want string) {
		t.Helper()
		eventually(t, what, func() error {
			if code, body := e.get("/v3/connect/agent", headers); code != wantCode || !strings.Contains(body, want) {
				time.Sleep(200 * time.Millisecond) // wrong tokens are limited
				return &unexpected{code, body}
			}
			return nil
		})
	}
	expect("the copied hash to be of no use", http.StatusUnauthorized, "bootstrap token of this machine is no longer valid")
	annotate(rkev1.BootstrapTokenHashAnnotation, tokens.BootstrapTokenHash(token), plan)
	expect("the machine to be registered", http.StatusOK, "kubeConfig")
	expect("the machine to be registered again", http.StatusOK, "kubeConfig")
	headers["X-Cattle-Machine-Secret"] = "another secret, long enough"
	expect("another machine to be refused", http.StatusUnauthorized, "not that machine's")
	headers["X-Cattle-Machine-Secret"] = machineSecret
	annotate(rkev1.BootstrapTokenInvalidatedAnnotation, "true", bootstrap)
	expect("a token that an operator has ended to be refused", http.StatusUnauthorized, "no longer valid")
	annotate(rkev1.BootstrapTokenInvalidatedAnnotation, "false", bootstrap)
	expect("the machine to be registered once more", http.StatusOK, "kubeConfig")
	report := client.RawPatch(types.MergePatchType, []byte(`{"data":{"applied-checksum":"MQ=="}}`))
	if err := e.client.Patch(t.Context(), plan, report); err != nil {
		t.Fatal(err)
	}
	expect("the token to be refused after the first report", http.StatusUnauthorized, "the machine has reported")
}

// createProvisioned creates a machine as an infrastructure provider's is.
func (e *gatewayEnv) createProvisioned(name string) *rkev1.RKEBootstrap {
	e.t.Helper()
	bootstrap := e.createMachine(e.t.Context(), name, "")
	machine := &clusterv1.Machine{}
	if err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(bootstrap), machine); err != nil {
		e.t.Fatal(err)
	}
	before := bootstrap.DeepCopy()
	bootstrap.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}
	if err := e.client.Patch(e.t.Context(), bootstrap, client.MergeFrom(before)); err != nil {
		e.t.Fatal(err)
	}
	return bootstrap
}

// TestGatewayAccountToken registers a machine with bootstrap data of an earlier hub, which derived the token from that of a ServiceAccount.
func TestGatewayAccountToken(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	bootstrap := e.createProvisioned("made")
	account := rkev1.BootstrapServiceAccountName("made")
	tokenSecret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: account + "-token", Annotations: map[string]string{
			corev1.ServiceAccountNameKey: account, rkev1.BootstrapTokenAnnotation: "true",
		}},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: account,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))},
	}}, tokenSecret)
	eventually(t, "the token", func() error {
		if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(tokenSecret), tokenSecret); err != nil ||
			len(tokenSecret.Data["token"]) == 0 {
			return http.ErrMissingFile
		}
		return nil
	})
	checkForeignAccount(t, e, "made")
	token := tokens.AccountBootstrapToken(tokenSecret.Data["token"])
	headers := map[string]string{"Authorization": "Bearer " + token, "X-Cattle-Id": "made", "X-Cattle-Machine-Secret": machineSecret}
	eventually(t, "the gateway to know the token", func() error {
		time.Sleep(200 * time.Millisecond)
		if code, body := e.get("/v3/connect/agent", headers); code != http.StatusOK {
			return &unexpected{code, body}
		}
		return nil
	})
	if code, body := e.get("/v3/connect/agent", headers); code != http.StatusOK {
		t.Errorf("again: %d %s", code, body)
	}
	headers["X-Cattle-Machine-Secret"] = "another secret, long enough"
	if code, body := e.get("/v3/connect/agent", headers); code != http.StatusUnauthorized {
		t.Errorf("with another secret: %d %s", code, body)
	}
	headers["X-Cattle-Machine-Secret"] = machineSecret
	headers["Authorization"] = "Bearer " + string(tokenSecret.Data["token"])
	if code, body := e.get("/v3/connect/agent", headers); code != http.StatusUnauthorized {
		t.Errorf("with the ServiceAccount's own token: %d %s", code, body)
	}
	if err := e.client.Delete(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: account}}); err != nil {
		t.Fatal(err)
	}
	headers["Authorization"] = "Bearer " + token
	eventually(t, "the token of a deleted Machine to be refused", func() error {
		switch code, body := e.get("/v3/connect/agent", headers); code {
		case http.StatusUnauthorized:
			return nil
		case http.StatusOK:
			t.Fatal("the Machine was deleted, and its token is accepted")
			return nil
		default: // It takes a moment.
			return &unexpected{code, body}
		}
	})
}

// checkForeignAccount creates a ServiceAccount that names an RKEBootstrap in its labels, as an attacker would to register in place of its
// machine, and checks that its token is refused.
func checkForeignAccount(t *testing.T, e *gatewayEnv, name string) {
	t.Helper()
	tokenSecret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "pretender", Annotations: map[string]string{
			corev1.ServiceAccountNameKey: "pretender", rkev1.BootstrapTokenAnnotation: "true",
		}},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "pretender", Labels: map[string]string{
		rkev1.ServiceAccountRoleLabel: "bootstrap", rkev1.BootstrapNameLabel: name,
	}}}, tokenSecret)
	eventually(t, "the pretender's token", func() error {
		if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(tokenSecret), tokenSecret); err != nil ||
			len(tokenSecret.Data["token"]) == 0 {
			return http.ErrMissingFile
		}
		return nil
	})
	headers := map[string]string{
		"Authorization": "Bearer " + tokens.AccountBootstrapToken(tokenSecret.Data["token"]), "X-Cattle-Id": "pretender",
		"X-Cattle-Machine-Secret": machineSecret + "-of-a-pretender",
	}
	// A token that the gateway does not know yet is refused for another reason.
	eventually(t, "the gateway to know the pretender's token", func() error {
		code, body := e.get("/v3/connect/agent", headers)
		if code == http.StatusOK {
			t.Fatal("an account that only names the RKEBootstrap in a label registers as its machine")
		}
		if code != http.StatusUnauthorized || !strings.Contains(body, "bootstrap token of this machine is no longer valid") {
			time.Sleep(200 * time.Millisecond) // wrong tokens are limited
			return &unexpected{code, body}
		}
		return nil
	})
}
