package engine

import (
	"encoding/pem"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/testenv/trusttest"
	"github.com/drover-dev/drover/plans"
)

const kubeletCertificate = "/var/lib/rancher/rke2/agent/client-kubelet.crt"

// certificate writes a certificate that ends at a time; the zero time removes it.
func (w *world) certificate(path string, end time.Time) {
	w.t.Helper()
	if end.IsZero() {
		if err := w.host.Remove(path); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	pair := trusttest.NewCA(w.t, "ca").ServeBetween(w.t, "127.0.0.1", end.AddDate(-1, 0, 0), end)
	raw := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	if err := w.host.WriteFile(path, raw, fs.WithMode(0o600)); err != nil {
		w.t.Fatal(err)
	}
}

// The ends of certificates are reported beside the probes, and again when they have changed.
func TestEndsOfCertificatesInFiles(t *testing.T) {
	for name, probed := range map[string]bool{"with probes": true, "without probes": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				h := newHealth(w)
				plan, want := plans.Plan{}, map[string]plans.ProbeStatus{}
				if probed {
					plan.Probes = probes(10, "well", "sick")
					h.set("http://sick", errors.New("down"))
					want = map[string]plans.ProbeStatus{"well": {Healthy: true, SuccessCount: 1}, "sick": {FailureCount: 3}}
				}
				first, second := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2028, 1, 2, 3, 4, 5, 0, time.UTC)
				w.certificate(kubeletCertificate, first)
				w.secret.deliver(plan, 1)
				w.start()
				time.Sleep(9 * time.Second)
				if got := w.secret.status().ProbeStatuses; probed && len(got) > 0 {
					t.Errorf("before any probe, %v is reported", got)
				}
				w.waitAMinute()
				expect := func(writes int, path string, end time.Time) {
					t.Helper()
					_, before := w.secret.counts()
					time.Sleep(time.Hour)
					synctest.Wait()
					all := map[string]plans.ProbeStatus{}
					for name, status := range want {
						all[name] = status
					}
					if path != "" {
						all["certificate:"+path] = plans.ProbeStatus{Healthy: true, CertificateNotAfter: end}
					}
					got := w.secret.status()
					if diff := cmp.Diff(all, got.ProbeStatuses); diff != "" && len(all)+len(got.ProbeStatuses) > 0 {
						t.Error(diff)
					}
					if _, after := w.secret.counts(); after-before != writes || got.State != plans.StateSucceeded {
						t.Errorf("%d writes, the state is %s", after-before, got.State)
					}
				}
				expect(0, kubeletCertificate, first)
				w.certificate(kubeletCertificate, second)
				expect(1, kubeletCertificate, second)
				// The process that follows goes on with what is known.
				w.stop()
				w.start()
				w.waitAMinute()
				expect(0, kubeletCertificate, second)
				// What is just being written keeps the end that it had.
				if err := w.host.WriteFile(kubeletCertificate, []byte("-----BEGIN"), fs.WithMode(0o600)); err != nil {
					t.Fatal(err)
				}
				expect(0, kubeletCertificate, second)
				w.certificate(kubeletCertificate, time.Time{})
				expect(1, "", time.Time{})
				w.stop()
				if len(h.asked) == 0 == probed {
					t.Errorf("asked %v", h.asked)
				}
			})
		})
	}
}

// Plans from files report none.
func TestCertificatesOfLocalPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.Name = "local"
		w.certificate(kubeletCertificate, time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC))
		w.secret.deliver(plans.Plan{}, 1)
		w.start()
		w.waitAMinute()
		w.stop()
		if got := w.secret.status().ProbeStatuses; len(got) > 0 {
			t.Errorf("got %v", got)
		}
	})
}
