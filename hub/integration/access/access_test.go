package access

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/usertokens"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestCertificate checks that the administrator of the management cluster, known by his certificate, is one of every cluster.
func TestCertificate(t *testing.T) {
	t.Parallel()
	who, _ := answers(t, asAdmin(newConnected(t)), http.StatusOK)
	if who.Username != "drover-hub-admin" || !slices.Contains(who.Groups, "system:masters") {
		t.Errorf("the cluster takes him for %+v", who)
	}
}

// TestServiceAccount checks that a ServiceAccount of the management cluster gets in when, and as long as, it may, and is not taken for the
// one of the same name that the cluster has.
func TestServiceAccount(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	user, token := robot(t, c, "robot")
	client := withToken(c, token)
	if _, message := answers(t, client, http.StatusForbidden); !strings.Contains(message, `cannot get resource "clusters/proxy"`) {
		t.Errorf("refused with %q", message)
	}
	binding := letIn(t, c, user)
	who, _ := answers(t, client, http.StatusOK)
	if who.Username != "drover:hub:"+user || !slices.Contains(who.Groups, "drover:hub:system:serviceaccounts") ||
		slices.Contains(who.Groups, "system:serviceaccounts") {
		t.Errorf("the cluster takes it for %+v", who)
	}
	if _, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("what the cluster does not let it do: %v", err)
	}
	env.Delete(t, binding)
	answers(t, client, http.StatusForbidden)
	env.Delete(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "robot"}})
	answers(t, client, http.StatusUnauthorized)
}

// TestOwnTokens checks the tokens of the hub's own: each opens one cluster, a lasting one until its Token is deleted.
func TestOwnTokens(t *testing.T) {
	t.Parallel()
	c, other := newConnected(t), newConnected(t)
	user, token := robot(t, c, "robot")
	letIn(t, c, user)
	short := userToken(t, c, token, usertokens.Request{TTLSeconds: 600})
	if who, _ := answers(t, withToken(c, short.Token), http.StatusOK); who.Username != "drover:hub:"+user {
		t.Errorf("the cluster takes it for %+v", who)
	}
	if _, message := answers(t, withToken(other, short.Token), http.StatusForbidden); !strings.Contains(message, "for another cluster") {
		t.Errorf("refused with %q", message)
	}

	lasting := userToken(t, c, token, usertokens.Request{TTLSeconds: 3600, Persistent: true, Description: "test"})
	client := withToken(c, lasting.Token)
	answers(t, client, http.StatusOK)
	object := &managementv3.Token{ObjectMeta: metav1.ObjectMeta{Name: lasting.Name}}
	testenv.Until(t, "its use to be noted", func() error {
		env.Get(t, "", lasting.Name, object)
		if object.Status.LastUsedAt == nil {
			return fmt.Errorf("status %+v", object.Status)
		}
		return nil
	})
	version := object.ResourceVersion
	for range 20 {
		answers(t, client, http.StatusOK)
	}
	if env.Get(t, "", lasting.Name, object); object.ResourceVersion != version {
		t.Error("it is written at every use")
	}
	env.Delete(t, object)
	deleted := time.Now()
	answers(t, client, http.StatusUnauthorized)
	t.Logf("revoked after %s", time.Since(deleted).Round(time.Millisecond))

	for name, path := range map[string]string{"hub": env.Log, "audit": env.Audit} {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for what, secret := range map[string]string{"ServiceAccount's": token, "short": short.Token, "lasting": lasting.Token} {
			if strings.Contains(string(raw), secret) {
				t.Errorf("the %s log holds the %s token", name, what)
			}
		}
	}
}

// TestImpersonation checks that whom somebody may be in clusters is a right in the management cluster.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	user, token := robot(t, c, "robot")
	letIn(t, c, user)
	config := through(c)
	config.BearerToken = token
	config.Impersonate = rest.ImpersonationConfig{UserName: "ann-" + c.id, Groups: []string{"devs-" + c.id}}
	client := kubernetes.NewForConfigOrDie(config)
	if _, message := answers(t, client, http.StatusForbidden); !strings.Contains(message, "cannot impersonate") &&
		!strings.Contains(message, "clusters/proxy") {
		t.Errorf("refused with %q", message)
	}
	meta := metav1.ObjectMeta{Name: "be-" + c.id}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"users"}, ResourceNames: []string{"ann-" + c.id}, Verbs: []string{"impersonate"}},
		{APIGroups: []string{""}, Resources: []string{"groups"}, ResourceNames: []string{"devs-" + c.id}, Verbs: []string{"impersonate"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	env.Create(t, role, binding)
	t.Cleanup(func() {
		_ = env.Client.Delete(context.Background(), binding)
		_ = env.Client.Delete(context.Background(), role)
	})
	if who, _ := answers(t, client, http.StatusOK); who.Username != "ann-"+c.id || !slices.Contains(who.Groups, "devs-"+c.id) {
		t.Errorf("the cluster takes it for %+v", who)
	}
}

// TestWatch checks that a watch sees what others write, in order, and lasts while nothing happens.
func TestWatch(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	client := asAdmin(c)
	answers(t, client, http.StatusOK)
	events, err := client.CoreV1().ConfigMaps(c.Namespace).Watch(t.Context(), metav1.ListOptions{LabelSelector: "watched"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for i := range 5 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: fmt.Sprintf("m%d", i),
			Labels: map[string]string{"watched": ""}}}
		if i == 4 {
			time.Sleep(2 * time.Second)
		}
		begun := time.Now()
		if _, err := client.CoreV1().ConfigMaps(c.Namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		select {
		case event := <-events.ResultChan():
			if got, ok := event.Object.(*corev1.ConfigMap); !ok || event.Type != watch.Added || got.Name != object.Name {
				t.Fatalf("event %+v", event)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event of %s after %s", object.Name, time.Since(begun))
		}
	}
}

// TestDisconnected checks that a cluster whose agent is disconnected is refused at once, and reached again as soon as it is back.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	client := asAdmin(c, func(config *rest.Config) {
		config.Timeout = 20 * time.Second
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return impatient{next} })
	})
	answers(t, client, http.StatusOK)
	c.agent.Disconnect()
	_, message := answers(t, client, http.StatusServiceUnavailable)
	if !strings.Contains(message, "not connected") {
		t.Errorf("refused with %q", message)
	}
	begun := time.Now()
	if _, err := whoAmI(t, client); !apierrors.IsServiceUnavailable(err) || time.Since(begun) > 15*time.Second {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
	c.agent.Connect(t)
	answers(t, client, http.StatusOK)
}

// impatient takes Retry-After away, which would have the client wait.
type impatient struct{ http.RoundTripper }

func (i impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := i.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusServiceUnavailable {
		if answer.Header.Get("Retry-After") == "" {
			return nil, fmt.Errorf("there is no Retry-After in %v", answer.Header)
		}
		answer.Header.Del("Retry-After")
	}
	return answer, err
}

// TestDeleted checks that nothing is left of a cluster that was deleted.
func TestDeleted(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	client := asAdmin(c)
	answers(t, client, http.StatusOK)
	env.Delete(t, c.Cluster)
	if _, message := answers(t, client, http.StatusNotFound); !strings.Contains(message, c.id) {
		t.Errorf("refused with %q", message)
	}
}
