package nodedriver_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/drover-dev/drover/hub/nodedriver/programs"
	fake "github.com/drover-dev/drover/hub/testenv/nodedriver"
)

// TestSomethingElseNotFound: a driver that does not find something else than the machine, which still runs, has not removed it.
func TestSomethingElseNotFound(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	if _, log, err := runner.Create(t.Context(), m); err != nil {
		t.Fatal(err, log)
	}
	cloud.SetFault(func(method, _ string) error {
		if method == http.MethodDelete {
			return errors.New("key pair not found")
		}
		return nil
	})
	if _, err := runner.Remove(t.Context(), m); err == nil || len(cloud.Instances()) != 1 {
		t.Errorf("got %v, left %v", err, cloud.Instances())
	}
	cloud.SetFault(nil)
	if _, err := runner.Remove(t.Context(), m); err != nil || len(cloud.Instances()) > 0 {
		t.Errorf("got %v, left %v", err, cloud.Instances())
	}
}

// TestNotFoundOrNotLetIn: of a cloud that says the same of a machine that is missing and of one that the credential may not use, a machine
// is gone only if its state can be seen.
func TestNotFoundOrNotLetIn(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	if _, log, err := runner.Create(t.Context(), m); err != nil {
		t.Fatal(err, log)
	}
	stopped, err := fake.Build(t.TempDir(), "stopped")
	if err != nil {
		t.Fatal(err)
	}
	m.Program = &programs.Program{Path: stopped}
	for _, seen := range []bool{false, true} {
		cloud.SetFault(func(method, _ string) error {
			if seen && method != http.MethodDelete {
				return nil
			}
			return errors.New("404: NotAuthorizedOrNotFound: instance ocid1 not found")
		})
		if _, err := runner.Remove(t.Context(), m); (err == nil) != seen {
			t.Errorf("its state can be seen: %t: %v", seen, err)
		}
	}
}
