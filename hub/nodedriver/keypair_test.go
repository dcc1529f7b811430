package nodedriver_test

import "testing"

// TestKeyPairGone: a machine whose key pair was deleted by a removal that has failed after that is removed by the next one.
func TestKeyPairGone(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "keypair")
	if _, log, err := runner.Create(t.Context(), m); err != nil {
		t.Fatal(err, log)
	}
	if log, err := runner.Remove(t.Context(), m); err != nil || len(cloud.Instances()) > 0 {
		t.Errorf("got %v, left %v: %s", err, cloud.Instances(), log)
	}
}
