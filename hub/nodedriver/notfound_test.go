package nodedriver_test

import (
	"errors"
	"net/http"
	"testing"
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
