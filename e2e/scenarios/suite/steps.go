package suite

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// Step runs a part of a scenario; the rest of the scenario is pointless once one has failed.
func Step(t *testing.T, name string, run func(t *testing.T)) {
	t.Helper()
	began := time.Now()
	if !t.Run(name, run) {
		t.FailNow()
	}
	t.Logf("%s (%.1f s)", name, time.Since(began).Seconds())
}

// Must fails the test at once.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NewHost adds a host that is removed when the test has passed, so that its cluster takes nothing from later tests. After a failure it
// stays to be looked at, and goes with the lab. The test is that of the whole scenario: with that of a Step, the host would go with the
// step.
func (s *Suite) NewHost(t *testing.T, name string) *hosts.Host {
	t.Helper()
	if strings.Contains(t.Name(), "/") {
		t.Fatalf("the host %s would be removed at the end of the step %s; make it with the test of the scenario", name, t.Name())
	}
	h, err := s.AddHost(t.Context(), name)
	Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := h.Remove(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// MakeNamespace makes a namespace in the hub, unless it is there.
func (s *Suite) MakeNamespace(t *testing.T, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Must(t, client.IgnoreAlreadyExists(s.Hub.Create(t.Context(), ns)))
}

// Settled makes a namespace and takes stock of the hub once the objects are there that every namespace gets: those that the namespace
// default has.
func (s *Suite) Settled(t *testing.T, namespace string) map[string]string {
	t.Helper()
	s.MakeNamespace(t, namespace)
	var before map[string]string
	Must(t, s.WaitFor(t.Context(), "the namespace is complete", 2*time.Minute, func(ctx context.Context) (bool, string) {
		var err error
		if before, err = s.Inventory(ctx); err != nil {
			return false, err.Error()
		}
		for _, every := range []struct{ kind, name string }{{"serviceaccounts.", "default"}, {"configmaps.", "kube-root-ca.crt"}} {
			_, wanted := before[every.kind+" "+metav1.NamespaceDefault+"/"+every.name]
			if _, found := before[every.kind+" "+namespace+"/"+every.name]; wanted && !found {
				return false, "it has no " + every.kind + " " + every.name
			}
		}
		return true, ""
	}))
	return before
}

// DeleteCluster deletes a Cluster and waits until it is gone. It may be deferred: the test's context may have ended.
func (s *Suite) DeleteCluster(t *testing.T, key client.ObjectKey) {
	t.Helper()
	ctx := context.Background()
	err := s.Hub.Delete(ctx, &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	if client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
	if err := s.WaitGone(ctx, s.Hub, key, 5*time.Minute); err != nil {
		t.Error(err)
	}
}

// RunKubectl runs kubectl with a kubeconfig and returns what it prints.
func (s *Suite) RunKubectl(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	out, err := s.TryKubectl(t.Context(), kubeconfig, args...)
	Must(t, err)
	return out
}

// TryKubectl is RunKubectl for a cluster that may be out of reach.
func (s *Suite) TryKubectl(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	cmd, err := s.Kubectl(ctx, kubeconfig, args...)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}

// RunHub runs the hub's command line with the administrator's kubeconfig and returns what it prints.
func (s *Suite) RunHub(t *testing.T, args ...string) string {
	t.Helper()
	cmd := s.Command(t.Context(), append([]string{filepath.Join(s.Repo, "bin", "hub")}, append(args, "--kubeconfig", s.HubKubeconfig())...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("hub %s: %v: %s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// RestartHub ends the hub as a crash does, and starts it again.
func (s *Suite) RestartHub(t *testing.T) {
	t.Helper()
	Must(t, s.KillHub(t.Context()))
	Must(t, s.StartHub(t.Context()))
}

// WaitQuiet waits until nothing in the hub's API has changed for d: some controllers look once more after a while, and say what they saw.
func (s *Suite) WaitQuiet(t *testing.T, d, limit time.Duration) {
	t.Helper()
	var last map[string]string
	var since time.Time
	var what string
	Must(t, s.WaitFor(t.Context(), "nothing has changed for "+d.String(), limit, func(ctx context.Context) (bool, string) {
		now, err := s.Inventory(ctx)
		if err != nil {
			return false, err.Error()
		}
		if written := lab.Written(last, now); last == nil || len(written) > 0 {
			since, what = time.Now(), strings.Join(written[:min(len(written), 3)], ", ")
		}
		last = now
		time.Sleep(time.Second) // a look costs the hub a list of each kind
		return time.Since(since) >= d, "written last: " + what
	}))
}

// NoWrites fails the test if any object of the hub's API changes within d. When a process has stood still for some seconds, others may have
// something to say of it, so that there are three tries, each for twice as long: what is written again and again is seen all the same.
func (s *Suite) NoWrites(t *testing.T, d time.Duration) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		before, err := s.Inventory(t.Context())
		Must(t, err)
		select {
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		case <-time.After(d):
		}
		after, err := s.Inventory(t.Context())
		Must(t, err)
		changed := lab.Written(before, after)
		if len(changed) == 0 {
			return
		}
		if attempt == 3 {
			t.Errorf("written within %s although nothing was to do:\n%s", d, strings.Join(changed, "\n"))
			return
		}
		t.Logf("written within %s, so that it is looked at again:\n%s", d, strings.Join(changed, "\n"))
		s.WaitQuiet(t, 20*time.Second, 5*time.Minute)
		d *= 2
	}
}
