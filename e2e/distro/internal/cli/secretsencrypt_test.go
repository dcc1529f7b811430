package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

func TestPrintEncryption(t *testing.T) {
	yes, no := true, false
	for _, tc := range []struct {
		state supervisor.EncryptionState
		want  string
	}{
		{supervisor.EncryptionState{}, "Encryption Status: Disabled, no configuration file found\n"},
		{
			supervisor.EncryptionState{Enable: &yes, Stage: "reencrypt_finished", HashMatch: true, ActiveKey: "AES-CBC aescbckey-2"},
			"Encryption Status: Enabled\nCurrent Rotation Stage: reencrypt_finished\nServer Encryption Hashes: All hashes match\n\n" +
				"Active  Key Type  Name\n------  --------  ----\n *      AES-CBC   aescbckey-2\n\n",
		},
		{
			supervisor.EncryptionState{Enable: &no, Stage: "start", HashError: "hash does not match between a and b",
				InactiveKeys: []string{"AES-CBC aescbckey-1"}},
			"Encryption Status: Disabled\nCurrent Rotation Stage: start\nServer Encryption Hashes: hash does not match between a and b\n\n" +
				"Active  Key Type  Name\n------  --------  ----\n        AES-CBC   aescbckey-1\n\n",
		},
	} {
		var out bytes.Buffer
		if err := printEncryption(&out, tc.state, ""); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, out.String()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestSecretsEncryptAsks(t *testing.T) {
	t.Setenv("K3S_TOKEN", "")
	var got supervisor.EncryptionRequest
	url, dataDir := serve(t, map[string]http.HandlerFunc{
		"GET " + supervisor.EncryptionStatusPath: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) },
		"PUT " + supervisor.EncryptionConfigPath: func(w http.ResponseWriter, r *http.Request) {
			got = supervisor.EncryptionRequest{}
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			if got.Force && !got.Skip {
				http.Error(w, "incorrect stage", http.StatusBadRequest)
			}
		},
	})
	stage := func(s string) *string { return &s }
	yes, no := true, false
	for _, tc := range []struct {
		args string
		want supervisor.EncryptionRequest
		code int
	}{
		{"status", supervisor.EncryptionRequest{}, 0},
		{"status -o json", supervisor.EncryptionRequest{}, 0},
		{"status -o xml", supervisor.EncryptionRequest{}, 1},
		{"enable", supervisor.EncryptionRequest{Enable: &yes}, 0},
		{"disable", supervisor.EncryptionRequest{Enable: &no}, 0},
		{"prepare", supervisor.EncryptionRequest{Stage: stage("prepare")}, 0},
		{"rotate --force", supervisor.EncryptionRequest{Stage: stage("rotate"), Force: true}, 1},
		{"reencrypt --force --skip", supervisor.EncryptionRequest{Stage: stage("reencrypt_active"), Force: true, Skip: true}, 0},
		{"rotate-keys", supervisor.EncryptionRequest{Stage: stage("rotate_keys")}, 0},
		{"rotate-keys --force", supervisor.EncryptionRequest{}, 1},
	} {
		got = supervisor.EncryptionRequest{}
		args := append(strings.Fields(tc.args), "--data-dir", dataDir, "--server", url)
		if code := Run(t.Context(), "secrets-encrypt", args); code != tc.code {
			t.Errorf("%s: exit code %d", tc.args, code)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.args, diff)
		}
	}
}
