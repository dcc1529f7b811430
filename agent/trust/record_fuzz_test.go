package trust

import (
	"crypto/ed25519"
	"log/slog"
	"testing"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
)

// FuzzRecord starts with any record of the accepted plan: an unsigned plan is refused.
func FuzzRecord(f *testing.F) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"keyID":"a","machine":"ns/m","sequence":5,"checksum":"b"}`))
	f.Add([]byte(`{"sequence":-1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h := fake.New()
		if err := h.WriteFile(record, raw, fs.WithMode(0o600)); err != nil {
			t.Fatal(err)
		}
		v, err := New(Options{Policy: config.SignaturesEnforce, Host: h, Path: record, Log: slog.New(slog.DiscardHandler),
			Key: func() (ed25519.PublicKey, error) { return public, nil }})
		if err != nil {
			t.Fatal(err)
		}
		if v.Verify(source.Snapshot{Machine: "ns/m", Delivery: plans.Delivery{Plan: []byte("{}"), Signature: raw}}) == nil {
			t.Error("an unsigned plan is accepted")
		}
	})
}
