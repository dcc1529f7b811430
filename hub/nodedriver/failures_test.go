package nodedriver_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/drover-dev/drover/hub/nodedriver"
)

// TestStateIsSavedAgain: while the Kubernetes API does not answer at the end of a creation, the state is saved again. Without it, nobody
// would know of the instance.
func TestStateIsSavedAgain(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	save, refused := m.Save, 0
	m.Save = func(ctx context.Context, s *nodedriver.State) error {
		if bytes.Contains(s.Config(), []byte(`"ID":"i-1"`)) && refused < 2 {
			refused++
			return errors.New("connection refused")
		}
		return save(ctx, s)
	}
	if _, log, err := runner.Create(t.Context(), m); err != nil || refused != 2 {
		t.Fatalf("refused %d times, %v: %s", refused, err, log)
	}
	if _, err := runner.Remove(t.Context(), m); err != nil || len(cloud.Instances()) > 0 {
		t.Errorf("got %v, left %v", err, cloud.Instances())
	}
}

// TestCloudIsBehind: a cloud that does not know at once what it has made, or answers that it is busy, costs no machine.
func TestCloudIsBehind(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	var asked atomic.Int32
	cloud.SetFault(func(method, path string) error {
		if method == http.MethodGet && strings.HasPrefix(path, "/instances/") && asked.Add(1) == 1 {
			return errors.New("instance not found")
		}
		return nil
	})
	if _, log, err := runner.Create(t.Context(), m); err != nil || asked.Load() < 2 || cloud.Made() != 1 {
		t.Errorf("asked %d times, made %d, %v: %s", asked.Load(), cloud.Made(), err, log)
	}
}

// TestDriverDiesRemoving: a driver that ends while it removes a machine has not removed it, whatever it has written before.
func TestDriverDiesRemoving(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "die-removing")
	if _, log, err := runner.Create(t.Context(), m); err != nil {
		t.Fatal(err, log)
	}
	_, err := runner.Remove(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "the program ended; its last output: volume not found") {
		t.Errorf("got %v", err)
	}
	if len(cloud.Instances()) != 1 {
		t.Errorf("left %v", cloud.Instances())
	}
}

// TestSecretsOfTheState: what a driver was given when it made a machine stays out of messages, too, when the credential is another one.
func TestSecretsOfTheState(t *testing.T) {
	m := &nodedriver.Machine{
		Credential: map[string]string{"password": "password-of-today"},
		State: &nodedriver.State{Name: "a", Files: map[string][]byte{
			"config.json": []byte(`{"Driver":{"Password":"earlier-password","AccessToken":"earlier-token","Region":"northern","Size":7}}`),
		}},
	}
	const want = "[redacted], [redacted] and [redacted] of northern"
	if got := m.Redact("password-of-today, earlier-password and earlier-token of northern"); got != want {
		t.Errorf("got %q", got)
	}
}

// TestRemovedByAnotherVersion: a machine is removed with the credential of today, also where a flag of the driver has another type by now.
func TestRemovedByAnotherVersion(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	if _, log, err := runner.Create(t.Context(), m); err != nil {
		t.Fatal(err, log)
	}
	m.Spec["size"] = "large" // as where the flag was a text
	cloud.SetToken("rotated-cloud-token")
	m.Credential["token"] = "rotated-cloud-token"
	if _, err := runner.Remove(t.Context(), m); err != nil || len(cloud.Instances()) > 0 {
		t.Errorf("got %v, left %v", err, cloud.Instances())
	}
}
