package clusterregistrationtoken

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
)

// fakeKubectl keeps the manifest that is created, and answers with the command of the status once it was waited for.
const fakeKubectl = `#!/bin/sh
cd "$(dirname "$0")" || exit 1
case "$*" in
*create*) cat >manifest ;;
*wait*) cp command status ;;
*get*) cat status ;;
esac
`

// TestTokenByHand runs the documented commands by which a user creates a token without the hub's program.
func TestTokenByHand(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kinds/clusterregistrationtoken.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```\n(token=.*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatal("the page has no commands that make a token")
	}
	dir := t.TempDir()
	command := nodeCommand(settings.Settings{ServerURL: "https://hub.example.com", CACerts: []byte("x")}, nil, verifiedDownload)
	for name, text := range map[string]string{"kubectl": fakeKubectl, "command": command, "status": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.CommandContext(t.Context(), "sh", "-ec", string(script[1]))
	run.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	run.Stderr = os.Stderr
	out, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "manifest"))
	if err != nil {
		t.Fatal(err)
	}
	crt := &managementv3.ClusterRegistrationToken{}
	if err := yaml.UnmarshalStrict(raw, crt); err != nil {
		t.Fatalf("%v in\n%s", err, raw)
	}
	printed := regexp.MustCompile(`CATTLE_TOKEN=([a-z0-9.]+)`).FindStringSubmatch(string(out))
	if len(printed) < 2 || !tokens.IsRegistrationToken(printed[1]) {
		t.Fatalf("the printed command has no token: %s", out)
	}
	want := managementv3.MadeToken{ID: tokens.RegistrationID(printed[1]), Hash: tokens.Hash(printed[1])}
	if crt.Spec.Made == nil || *crt.Spec.Made != want {
		t.Errorf("spec.made is %+v, want %+v", crt.Spec.Made, want)
	}
	if got := strings.TrimSpace(string(out)); got != strings.ReplaceAll(command, managementv3.TokenPlaceholder, printed[1])+" --worker" {
		t.Errorf("the command is\n%s\nwant the role after\n%s", got, command)
	}
}
