package plans

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"testing"
)

func TestSignature(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := Sign(private, "abc", "fleet/m1", 7)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Verify(public, raw, "abc", "fleet/m1"); err != nil || s.Sequence != 7 || s.KeyID != KeyID(public) {
		t.Errorf("got %+v, %v", s, err)
	}
	for name, check := range map[string]func() error{
		"another plan":    func() error { _, err := Verify(public, raw, "abd", "fleet/m1"); return err },
		"another machine": func() error { _, err := Verify(public, raw, "abc", "fleet/m2"); return err },
		"another key":     func() error { _, err := Verify(other, raw, "abc", "fleet/m1"); return err },
		"not signed":      func() error { _, err := Verify(public, nil, "abc", "fleet/m1"); return err },
		"another sequence": func() error {
			_, err := Verify(public, bytes.Replace(raw, []byte(`"sequence":7`), []byte(`"sequence":8`), 1), "abc", "fleet/m1")
			return err
		},
	} {
		if err := check(); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := Verify(public, []byte("no JSON"), "abc", "fleet/m1"); err == nil {
		t.Error("nonsense passes")
	}
}

func FuzzVerify(f *testing.F) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	raw, err := Sign(private, "abc", "fleet/m1", 7)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, err := Verify(public, raw, "abc", "fleet/m1"); err == nil && s.Sequence != 7 {
			t.Errorf("a forged signature passes: %s", raw)
		}
	})
}
