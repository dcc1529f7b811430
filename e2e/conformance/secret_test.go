//go:build conformance

package conformance

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
)

const (
	secretName = "machine-plan"
	// secretType, label and annotation are as hubs set them; agents have to leave them alone.
	secretType       = "rke.cattle.io/machine-plan"
	secretLabel      = "rke.cattle.io/machine-name"
	secretAnnotation = "rke.cattle.io/plan-last-updated"
)

// obj is a JSON object.
type obj = map[string]any

// state is the plan Secret at some time.
type state struct {
	object *corev1.Secret
	at     time.Time
}

func (s state) String() string {
	var out strings.Builder
	if s.object == nil {
		return "there is none\n"
	}
	for _, key := range slices.Sorted(maps.Keys(s.object.Data)) {
		text := s.text(key)
		if strings.HasSuffix(key, "-output") {
			text = string(s.unzip(key))
		}
		fmt.Fprintf(&out, "%s: %.300q\n", key, text)
	}
	return out.String()
}

func (s state) text(key string) string {
	if s.object == nil {
		return ""
	}
	return string(s.object.Data[key])
}

func (s state) number(key string) int {
	n, err := strconv.Atoi(s.text(key))
	if err != nil {
		return -1
	}
	return n
}

func (s state) unzip(key string) []byte {
	r, err := gzip.NewReader(strings.NewReader(s.text(key)))
	if err != nil {
		return nil
	}
	raw, _ := io.ReadAll(r)
	return raw
}

// outputs are those of one-time instructions.
func (s state) outputs(key string) map[string]string {
	var raw map[string][]byte
	_ = json.Unmarshal(s.unzip(key), &raw)
	out := map[string]string{}
	for name, text := range raw {
		out[name] = string(text)
	}
	return out
}

// periodicOutput is as in the Secret.
type periodicOutput struct {
	Name                  string `json:"name"`
	Stdout                []byte `json:"stdout"`
	Stderr                []byte `json:"stderr"`
	ExitCode              int    `json:"exitCode"`
	LastSuccessfulRunTime string `json:"lastSuccessfulRunTime"`
	Failures              int    `json:"failures"`
	LastFailedRunTime     string `json:"lastFailedRunTime"`
}

func (s state) periodic(name string) (out periodicOutput, found bool) {
	var all map[string]periodicOutput
	_ = json.Unmarshal(s.unzip("applied-periodic-output"), &all)
	out, found = all[name]
	return out, found
}

// probeStatus is as in the Secret.
type probeStatus struct {
	Healthy      bool `json:"healthy"`
	SuccessCount int  `json:"successCount"`
	FailureCount int  `json:"failureCount"`
}

func (s state) probe(name string) (out probeStatus, found bool) {
	var all map[string]probeStatus
	_ = json.Unmarshal([]byte(s.text("probe-statuses")), &all)
	out, found = all[name]
	return out, found
}

// applied and failed tell the verdict about a plan, under either protocol.
func (s state) applied(checksum string) bool {
	state := s.text("plan-state")
	return s.text("applied-checksum") == checksum && s.text("failed-checksum") != checksum && (state == "" || state == "succeeded")
}

func (s state) failed(checksum string) bool {
	return s.text("failed-checksum") == checksum && s.number("failure-count") > 0
}

// observe takes a change of the Secret.
func (m *machine) observe(event watch.EventType, secret *corev1.Secret) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if event == watch.Deleted {
		secret = nil
	}
	m.versions = append(m.versions, state{secret, time.Now()})
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// now is the Secret as it was seen last.
func (m *machine) now() state {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.versions) == 0 {
		return state{}
	}
	return m.versions[len(m.versions)-1]
}

// history is all that the Secret ever was.
func (m *machine) history() []state {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.versions)
}

// register gives the machine a namespace, an account with the rights that hubs give, and its connection info.
func (m *machine) register() {
	ctx := context.Background()
	meta := metav1.ObjectMeta{Name: "machine"}
	check := func(err error) {
		if err != nil {
			m.t.Fatal(err)
		}
	}
	namespace, err := api.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "machine-"}},
		metav1.CreateOptions{})
	check(err)
	m.namespace = namespace.Name
	machines.Store(m.namespace, m)
	_, err = api.client.CoreV1().ServiceAccounts(m.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	check(err)
	_, err = api.client.RbacV1().Roles(m.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secretName},
		Verbs: []string{"watch", "get", "update", "list"},
	}}}, metav1.CreateOptions{})
	check(err)
	_, err = api.client.RbacV1().RoleBindings(m.namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "machine"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "machine", Namespace: m.namespace}}}, metav1.CreateOptions{})
	check(err)
	hours := int64(24 * 60 * 60)
	token, err := api.client.CoreV1().ServiceAccounts(m.namespace).CreateToken(ctx, "machine",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}, metav1.CreateOptions{})
	check(err)
	m.connect(m.proxy.URL, m.proxy.ca(), token.Status.Token)
}

// connect writes the connection info as hubs write it.
func (m *machine) connect(server string, ca []byte, token string) {
	cluster := obj{"server": server}
	if ca != nil {
		cluster["certificate-authority-data"] = base64.StdEncoding.EncodeToString(ca)
	}
	kubeconfig, err := json.Marshal(obj{
		"apiVersion": "v1", "kind": "Config", "current-context": "agent",
		"clusters": []obj{{"name": "agent", "cluster": cluster}},
		"users":    []obj{{"name": "agent", "user": obj{"token": token}}},
		"contexts": []obj{{"name": "agent", "context": obj{"cluster": "agent", "user": "agent"}}},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	info, err := json.Marshal(obj{"kubeConfig": string(kubeconfig), "namespace": m.namespace, "secretName": secretName})
	if err != nil {
		m.t.Fatal(err)
	}
	m.write("rancher2_connection_info.json", string(info))
}

// token is the one of the connection info.
func (m *machine) token() string {
	_, rest, _ := strings.Cut(m.read("rancher2_connection_info.json"), `\"token\":\"`)
	token, _, _ := strings.Cut(rest, `\"`)
	return token
}

// set writes keys of the Secret as a hub does, making the Secret where there is none; an empty value removes a key.
func (m *machine) set(keys map[string]string) {
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return apierrors.IsConflict(err) }, func() error {
		secrets := api.client.CoreV1().Secrets(m.namespace)
		secret, err := secrets.Get(context.Background(), secretName, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			secret = &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: secretName, Labels: map[string]string{secretLabel: "m"},
					Annotations: map[string]string{secretAnnotation: "then"}},
				Type: secretType,
				// Short rounds make for short tests.
				Data: map[string][]byte{"probe-period-seconds": []byte("1")},
			}
		} else if err != nil {
			return err
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		for key, value := range keys {
			if value == "" {
				delete(secret.Data, key)
				continue
			}
			secret.Data[key] = []byte(value)
		}
		if missing {
			_, err = secrets.Create(context.Background(), secret, metav1.CreateOptions{})
		} else {
			_, err = secrets.Update(context.Background(), secret, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		m.Fatalf("writing the Secret: %s", err)
	}
}

// annotate sets an annotation of the Secret.
func (m *machine) annotate(name, value string) {
	patch, _ := json.Marshal(obj{"metadata": obj{"annotations": obj{name: value}}})
	if _, err := api.client.CoreV1().Secrets(m.namespace).Patch(context.Background(), secretName, "application/merge-patch+json", patch,
		metav1.PatchOptions{}); err != nil {
		m.Fatalf("annotating the Secret: %s", err)
	}
}

func (m *machine) deleteSecret() {
	if err := api.client.CoreV1().Secrets(m.namespace).Delete(context.Background(), secretName, metav1.DeleteOptions{}); err != nil {
		m.Fatalf("deleting the Secret: %s", err)
	}
}

// deliver delivers a plan as hubs do that know checksums only, with keys set beside it, and gives its checksum.
func (m *machine) deliver(plan obj, more ...map[string]string) string {
	return m.deliverRaw(encode(plan), more...)
}

func (m *machine) deliverRaw(plan string, more ...map[string]string) string {
	keys := map[string]string{"plan": plan, "probe-statuses": ""}
	for _, values := range more {
		maps.Copy(keys, values)
	}
	m.set(keys)
	return checksum(plan)
}

// pending delivers a plan under the protocol with states.
func (m *machine) pending(plan obj, more ...map[string]string) string {
	return m.deliver(plan, append([]map[string]string{{"plan-state": "pending"}}, more...)...)
}

// run delivers a plan, starts the agent where it does not run yet, and waits until the plan is applied.
func (m *machine) run(plan obj, more ...map[string]string) state {
	sum := m.deliver(plan, more...)
	if m.pid() == 0 {
		m.start()
	}
	return m.until("success", func(s state) bool { return s.applied(sum) })
}

// fail is run for a plan that has to fail.
func (m *machine) fail(plan obj, more ...map[string]string) state {
	sum := m.deliver(plan, more...)
	if m.pid() == 0 {
		m.start()
	}
	return m.until("failure", func(s state) bool { return s.failed(sum) })
}

func encode(plan obj) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(plan); err != nil {
		panic(err)
	}
	return strings.TrimSpace(out.String())
}

func checksum(plan string) string {
	sum := sha256.Sum256([]byte(plan))
	return hex.EncodeToString(sum[:])
}

func base64Of(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// file is one of a plan; a relative path is below the machine's folder.
func (m *machine) file(path, text string, with ...obj) obj {
	f := obj{"path": m.path(path), "content": base64Of(text)}
	for _, more := range with {
		maps.Copy(f, more)
	}
	return f
}

func (m *machine) files(list ...obj) obj { return obj{"files": list} }

// sh is an instruction that runs a line of shell and saves what it prints. The machine's folder is $M.
func sh(name, script string, with ...obj) obj {
	i := obj{"name": name, "command": "sh", "args": []string{"-c", script}, "saveOutput": true}
	for _, more := range with {
		maps.Copy(i, more)
	}
	return i
}

func instructions(list ...obj) obj { return obj{"instructions": list} }

// both joins parts of a plan.
func both(parts ...obj) obj {
	plan := obj{}
	for _, part := range parts {
		maps.Copy(plan, part)
	}
	return plan
}
