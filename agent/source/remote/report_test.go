package remote_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/plans"
)

// TestSecretIsNearlyFull shows that B15 cannot happen: a Secret that has room for little is given little, and a plan with other names
// leaves none of the former's outputs.
func TestSecretIsNearlyFull(t *testing.T) {
	t.Parallel()
	for _, used := range []int{0, 600 << 10, 1000 << 10} {
		t.Run(fmt.Sprintf("%d KiB are used", used>>10), onStand(func(t *testing.T, s *stand) {
			s.host.Program("ok", func(context.Context, run.Command) (run.Result, error) {
				noise := make([]byte, 128<<10)
				for i := range noise {
					noise[i] = byte(rand.Uint32()) // nothing that could be compressed
				}
				return run.Result{Stdout: noise}, nil
			})
			var instructions, periodic []string
			for i := range 12 {
				instructions = append(instructions, fmt.Sprintf(`{"name":"i%d","command":"ok","saveOutput":true}`, i))
				periodic = append(periodic, fmt.Sprintf(`{"name":"p%d","command":"ok"}`, i))
			}
			s.hub.Change(func(secret *corev1.Secret) { secret.Data["hubs-own"] = bytes.Repeat([]byte("x"), used) })
			checksum := s.hub.Deliver(`{"instructions":[` + strings.Join(instructions, ",") + `],"periodicInstructions":[` +
				strings.Join(periodic, ",") + `]}`)
			s.start()
			s.succeeded(checksum)
			s.until("the periodic outputs", func(status plans.Status) bool { return len(status.PeriodicOutput) == 12 })
			if got := s.status(); len(got.AppliedOutput) != 12 || len(got.AppliedOutput["i0"]) >= 128<<10 {
				t.Errorf("got %d outputs, the first of %d bytes", len(got.AppliedOutput), len(got.AppliedOutput["i0"]))
			}
			s.succeeded(s.hub.Deliver(`{"instructions":[{"name":"other","command":"ok","saveOutput":true}]}`))
			s.until("the former outputs to go", func(status plans.Status) bool {
				return len(status.AppliedOutput) == 1 && len(status.PeriodicOutput) == 0
			})
		}))
	}
}

// TestBombInTheReport shows that S10 cannot happen: a value that unpacks to more than the agent could hold is not unpacked, and is
// replaced.
func TestBombInTheReport(t *testing.T) {
	t.Parallel()
	var member bytes.Buffer
	w := gzip.NewWriter(&member)
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	bomb := bytes.Repeat(member.Bytes(), 256) // members one after the other are one file of gzip (RFC 1952, section 2.2)
	for _, key := range []string{plans.KeyAppliedOutput, plans.KeyFailedOutput, plans.KeyAppliedPeriodicOutput} {
		t.Run(key, onStand(func(t *testing.T, s *stand) {
			s.hub.Change(func(secret *corev1.Secret) { secret.Data[key] = bytes.Clone(bomb) })
			checksum := s.hub.Deliver(plan("a"))
			s.start()
			s.succeeded(checksum)
			if got := s.hub.Now().Data[key]; len(got) > 1000 {
				t.Errorf("%d bytes are left", len(got))
			}
		}))
	}
}

// TestNonsenseInTheReport shows that no value of the agent's keys, whoever wrote it, keeps a plan from being applied.
func TestNonsenseInTheReport(t *testing.T) {
	for name, nonsense := range map[string]string{"text": "nonsense", "zeros": "\x00\x00\x00", "a list": "[1,2]",
		"a number": "-9223372036854775808"} {
		t.Run(name, onStand(func(t *testing.T, s *stand) {
			s.hub.Change(func(secret *corev1.Secret) {
				for _, key := range plans.AgentKeys() {
					secret.Data[key] = []byte(nonsense)
				}
			})
			s.start()
			checksum := s.hub.Deliver(plan("a"))
			s.succeeded(checksum)
			if _, err := plans.DecodeStatus(s.hub.Now().Data); err != nil {
				t.Errorf("nonsense is left: %v", err)
			}
			if diff := cmp.Diff([]string{"a"}, s.ran()); diff != "" {
				t.Error(diff)
			}
		}))
	}
}
