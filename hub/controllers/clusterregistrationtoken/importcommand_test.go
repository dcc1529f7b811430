package clusterregistrationtoken

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/server/settings"
)

// TestImportCommands runs the commands, with a program in place of kubectl that keeps what it is given.
func TestImportCommands(t *testing.T) {
	const token = "id.planted"
	var asked []string
	var hub settings.Settings
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cacerts" {
			_, _ = w.Write(hub.CACerts)
			return
		}
		asked = append(asked, r.URL.Path)
		_, _ = w.Write([]byte("kind: List\n"))
	}))
	defer server.Close()
	hub.ServerURL = server.URL
	hub.CACerts = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})

	status := func(hub settings.Settings) managementv3.ClusterRegistrationTokenStatus {
		crt := &managementv3.ClusterRegistrationToken{Spec: managementv3.ClusterRegistrationTokenSpec{ClusterName: "c-m-abcdefgh"}}
		setImportCommands(crt, hub)
		return crt.Status
	}
	bin := t.TempDir()
	for name, script := range map[string]string{
		"kubectl": "#!/bin/sh\ncat > \"$KEEP\"\n",
		// What others on the machine would see of curl.
		"curl": "#!/bin/sh\necho \"$@\" >> \"$SEEN\"\nexec " + which(t, "curl") + " \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	wrong := hub
	wrong.CACerts = append([]byte("other\n"), hub.CACerts...)
	for _, tt := range []struct {
		name, command  string
		applies, shown bool
	}{
		{name: "insecure", command: status(hub).InsecureCommand, applies: true, shown: true},
		{name: "verified", command: status(hub).VerifiedCommand, applies: true},
		{name: "another authority", command: status(wrong).VerifiedCommand},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked = nil
			kept, seen := filepath.Join(t.TempDir(), "kept"), filepath.Join(t.TempDir(), "seen")
			cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(tt.command, managementv3.TokenPlaceholder, token))
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KEEP="+kept, "SEEN="+seen, "TMPDIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if (err == nil) != tt.applies {
				t.Fatalf("ended with %v:\n%s", err, out)
			}
			applied, _ := os.ReadFile(kept)
			if (string(applied) == "kind: List\n") != tt.applies {
				t.Errorf("kubectl was given %q", applied)
			}
			if tt.applies && (len(asked) != 1 || asked[0] != "/v3/import/"+token+"_c-m-abcdefgh.yaml") {
				t.Errorf("asked for %v", asked)
			}
			arguments, _ := os.ReadFile(seen)
			if strings.Contains(string(arguments), token) != tt.shown {
				t.Errorf("the arguments of curl are %s", arguments)
			}
		})
	}
	if got := status(settings.Settings{ServerURL: "https://hub"}); got.VerifiedCommand != "" ||
		got.Command != "kubectl apply -f 'https://hub/v3/import/{token}_c-m-abcdefgh.yaml'" {
		t.Errorf("a hub that everybody trusts shows %+v", got)
	}
	if got := status(settings.Settings{}); got.Command != "" || got.ManifestURL != "" {
		t.Errorf("a hub without a URL shows %+v", got)
	}
}

func which(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
