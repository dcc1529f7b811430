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

// TestCertificate: the administrator of the management cluster, who authenticates with a certificate, is administrator of every cluster.
func TestCertificate(t *testing.T) {
	t.Parallel()
	who, _ := awaitCode(t, asAdmin(newConnected(t)), http.StatusOK)
	if who.Username != "drover-hub-admin" || !slices.Contains(who.Groups, "system:masters") {
		t.Errorf("the cluster takes him for %+v", who)
	}
}

// TestServiceAccount: a ServiceAccount of the management cluster has access while it has the right, and is not confused with the
// ServiceAccount of the same name in the cluster.
func TestServiceAccount(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	user, token := newServiceAccount(t, c, "robot")
	client := withToken(c, token)
	if _, message := awaitCode(t, client, http.StatusForbidden); !strings.Contains(message, `cannot get resource "clusters/proxy"`) {
		t.Errorf("refused with %q", message)
	}
	binding := grantAccess(t, c, user)
	who, _ := awaitCode(t, client, http.StatusOK)
	if who.Username != "drover:hub:"+user || !slices.Contains(who.Groups, "drover:hub:system:serviceaccounts") ||
		slices.Contains(who.Groups, "system:serviceaccounts") {
		t.Errorf("the cluster takes it for %+v", who)
	}
	if _, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("what the cluster does not let it do: %v", err)
	}
	env.Delete(t, binding)
	awaitCode(t, client, http.StatusForbidden)
	env.Delete(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "robot"}})
	awaitCode(t, client, http.StatusUnauthorized)
}

// TestUserTokens: each token of the hub gives access to one cluster, a persistent one until its Token is deleted.
func TestUserTokens(t *testing.T) {
	t.Parallel()
	c, other := newConnected(t), newConnected(t)
	user, token := newServiceAccount(t, c, "robot")
	grantAccess(t, c, user)
	short := userToken(t, c, token, usertokens.Request{TTLSeconds: 600})
	if who, _ := awaitCode(t, withToken(c, short.Token), http.StatusOK); who.Username != "drover:hub:"+user {
		t.Errorf("the cluster takes it for %+v", who)
	}
	if _, message := awaitCode(t, withToken(other, short.Token), http.StatusForbidden); !strings.Contains(message, "for another cluster") {
		t.Errorf("refused with %q", message)
	}

	// A group that the user has left is removed from the user's Tokens at the next login.
	account := &corev1.ServiceAccount{}
	env.Get(t, c.Namespace, "robot", account)
	earlier := &managementv3.Token{ObjectMeta: metav1.ObjectMeta{Name: "earlier-" + c.id}, Spec: managementv3.TokenSpec{
		ClusterName: c.id, ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)), Hash: strings.Repeat("a", 64),
		User: managementv3.TokenUser{Username: user, UID: string(account.UID), Groups: []string{"system:serviceaccounts", "left"}},
	}}
	env.Create(t, earlier)
	testenv.Until(t, "a login that the hub knows the Token at", func() error {
		userToken(t, c, token, usertokens.Request{TTLSeconds: 600})
		env.Get(t, "", earlier.Name, earlier)
		if !slices.Equal(earlier.Spec.User.Groups, []string{"system:serviceaccounts"}) || earlier.Status.ConfirmedAt == nil {
			return fmt.Errorf("groups %v, confirmed at %v", earlier.Spec.User.Groups, earlier.Status.ConfirmedAt)
		}
		return nil
	})

	lasting := userToken(t, c, token, usertokens.Request{TTLSeconds: 3600, Persistent: true, Description: "test"})
	client := withToken(c, lasting.Token)
	awaitCode(t, client, http.StatusOK)
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
		awaitCode(t, client, http.StatusOK)
	}
	if env.Get(t, "", lasting.Name, object); object.ResourceVersion != version {
		t.Error("it is written at every use")
	}
	env.Delete(t, object)
	deleted := time.Now()
	awaitCode(t, client, http.StatusUnauthorized)
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

// TestImpersonation: whom a user may impersonate in clusters is a right in the management cluster.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	user, token := newServiceAccount(t, c, "robot")
	grantAccess(t, c, user)
	config := proxyConfig(c)
	config.BearerToken = token
	config.Impersonate = rest.ImpersonationConfig{UserName: "ann-" + c.id, Groups: []string{"devs-" + c.id}}
	client := kubernetes.NewForConfigOrDie(config)
	if _, message := awaitCode(t, client, http.StatusForbidden); !strings.Contains(message, "cannot impersonate") &&
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
	if who, _ := awaitCode(t, client, http.StatusOK); who.Username != "ann-"+c.id || !slices.Contains(who.Groups, "devs-"+c.id) {
		t.Errorf("the cluster takes it for %+v", who)
	}
}

// TestWatch: a watch delivers changes in order, and stays open while nothing changes.
func TestWatch(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	client := asAdmin(c)
	awaitCode(t, client, http.StatusOK)
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
		case <-time.After(testenv.Patience):
			t.Fatalf("no event of %s after %s", object.Name, time.Since(begun))
		}
	}
}

// TestDisconnected: requests to a cluster whose agent is disconnected are refused at once, and work again once it is connected.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	client := asAdmin(c, func(config *rest.Config) {
		config.Timeout = 20 * time.Second
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return noRetryAfter{next} })
	})
	awaitCode(t, client, http.StatusOK)
	c.agent.Disconnect()
	_, message := awaitCode(t, client, http.StatusServiceUnavailable)
	if !strings.Contains(message, "not connected") {
		t.Errorf("refused with %q", message)
	}
	testenv.Until(t, "a request to be refused at once", func() error {
		begun := time.Now()
		if _, err := whoAmI(t, client); !apierrors.IsServiceUnavailable(err) || time.Since(begun) > 15*time.Second {
			return fmt.Errorf("after %s: %w", time.Since(begun), orNone(err))
		}
		return nil
	})
	c.agent.Connect(t)
	awaitCode(t, client, http.StatusOK)
}

// noRetryAfter removes the header Retry-After, so that clients do not wait.
type noRetryAfter struct{ http.RoundTripper }

func (i noRetryAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := i.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusServiceUnavailable {
		if answer.Header.Get("Retry-After") == "" {
			return nil, fmt.Errorf("there is no Retry-After in %v", answer.Header)
		}
		answer.Header.Del("Retry-After")
	}
	return answer, err
}

// TestDeletedCluster: a deleted cluster is not reachable any more.
func TestDeletedCluster(t *testing.T) {
	t.Parallel()
	c := newConnected(t)
	client := asAdmin(c)
	awaitCode(t, client, http.StatusOK)
	env.Delete(t, c.Cluster)
	if _, message := awaitCode(t, client, http.StatusNotFound); !strings.Contains(message, c.id) {
		t.Errorf("refused with %q", message)
	}
}
