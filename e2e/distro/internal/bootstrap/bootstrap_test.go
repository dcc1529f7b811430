package bootstrap

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFind(t *testing.T) {
	files := Files{"tls/server-ca.key": []byte("key"), "tls/service.key": nil}
	raw, err := Encode(files, "secret")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, []byte("server-ca")) {
		t.Error("the files can be read without a token")
	}
	keys := map[string][]byte{Key("secret"): raw}
	got, err := Find(keys, "secret")
	if diff := cmp.Diff(files, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := Find(keys, "other"); !errors.Is(err, ErrToken) {
		t.Errorf("another token: %v", err)
	}
	if _, err := Decode(raw, "other"); !errors.Is(err, ErrToken) {
		t.Errorf("decoding with another token: %v", err)
	}
	if got, err := Find(nil, "secret"); got != nil || err != nil {
		t.Errorf("nothing there: %v, %v", got, err)
	}
	if _, err := Decode(raw[:3], "secret"); err == nil {
		t.Error("data that was cut is taken")
	}
	raw[len(raw)-1] ^= 1
	if _, err := Decode(raw, "secret"); err == nil {
		t.Error("data that was changed is taken")
	}
}
