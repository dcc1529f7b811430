package render

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
)

// fakeDistribution answers "secrets-encrypt" and "kubectl" from files below $FAKE: keys (the first is the active one), type (that of the
// active key, and that of others if it is another), stage, enabled and hashes. Writing all Secrets lasts for as many looks at the status as
// pending says, and for ever if stuck is there. A command that is in the file timeout does its work and fails, one in refused fails
// without. Each command is noted in log.
const fakeDistribution = `#!/bin/sh
set -eu
cd "$FAKE"
finish() { sed '$d' keys >keys.new; mv keys.new keys; echo reencrypt_finished >stage; }
# among reports whether a line of a file is a text.
among() {
    while read -r line; do [ "$line" != "$1" ] || return 0; done <"$2"
    return 1
}
if [ "$1" = kubectl ]; then
    [ ! -e unreadable ] || { echo "Internal error occurred: unable to decrypt" >&2; exit 1; }
    echo secret/a
    exit 0
fi
verb=$2
if [ "$verb" != status ]; then
    echo "$verb" >>log
    if among "$verb" refused; then echo "error ID 12345" >&2; exit 1; fi
fi
read -r stage <stage
case $verb in
status)
    [ ! -e down ] || { echo "connection refused" >&2; exit 1; }
    if [ "$stage" = reencrypt_active ] && [ ! -e stuck ]; then
        read -r left <pending
        left=$((left - 1))
        echo "$left" >pending
        [ "$left" -gt 0 ] || finish
    fi
    if [ ! -s keys ]; then echo "Encryption Status: Disabled, no configuration file found"; exit 0; fi
    read -r enabled <enabled
    read -r stage <stage
    read -r hashes <hashes
    read -r type others <type
    printf 'Encryption Status: %s\nCurrent Rotation Stage: %s\n' "$enabled" "$stage"
    printf 'Server Encryption Hashes: %s\n\nActive  Key Type  Name\n------  --------  ----\n' "$hashes"
    mark='*'
    while read -r key; do
        printf ' %s      %s   %s\n' "$mark" "$type" "$key"
        mark=' ' type=${others:-$type}
    done <keys
    ;;
rotate-keys)
    case $stage in start | reencrypt_finished) ;; *) echo "incorrect stage" >&2; exit 1 ;; esac
    { echo new; cat keys; } >keys.new
    mv keys.new keys
    echo reencrypt_active >stage
    ;;
prepare) echo new >>keys; echo prepare >stage ;;
rotate) { echo new; sed '$d' keys; } >keys.new; mv keys.new keys; echo rotate >stage ;;
reencrypt) echo reencrypt_active >stage ;;
esac
if among "$verb" timeout; then echo "context deadline exceeded" >&2; exit 1; fi
`

// encryptionHost is a server with the fake distribution.
type encryptionHost struct {
	t         *testing.T
	dir, fake string
}

func newEncryptionHost(t *testing.T, files map[string]string) *encryptionHost {
	t.Helper()
	h := &encryptionHost{t: t, dir: t.TempDir()}
	h.fake = filepath.Join(h.dir, "fake")
	if err := os.MkdirAll(h.fake, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"stage": "start", "keys": "old", "enabled": "Enabled", "hashes": "All hashes match",
		"type": "AES-CBC", "pending": "2", "timeout": "", "refused": "", "log": ""} {
		if other, set := files[name]; set {
			content = other
		}
		h.set(name, content)
	}
	for name, content := range files {
		h.set(name, content)
	}
	writePrograms(t, h.dir, clockPrograms, map[string]string{"k3s": fakeDistribution})
	return h
}

func (h *encryptionHost) set(name, content string) {
	h.t.Helper()
	if content != "" {
		content += "\n"
	}
	if err := os.WriteFile(filepath.Join(h.fake, name), []byte(content), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *encryptionHost) get(name string) string {
	content, _ := os.ReadFile(filepath.Join(h.fake, name))
	return strings.Join(strings.Fields(string(content)), " ")
}

// run runs a step. killAt is the line before which the script is killed when it first comes there; 0 for none.
func (h *encryptionHost) run(step, seconds string, killAt int) (string, error) {
	h.t.Helper()
	script := encryptionKeysSh
	if killAt > 0 {
		script = insertBefore(script, map[int]string{killAt: "kill -9 $$"})
	}
	return h.runScript(script, step, seconds)
}

func (h *encryptionHost) runScript(script, step, seconds string) (string, error) {
	h.t.Helper()
	command := exec.CommandContext(h.t.Context(), "/bin/sh", "-c", script, "encryption-keys", step, filepath.Join(h.dir, "state"), seconds,
		"5",
		"k3s", "https://127.0.0.1:6443", "k3s", "kubectl")
	command.Env = append(os.Environ(), "PATH="+h.dir+":"+os.Getenv("PATH"), "FAKE="+h.fake)
	output, err := command.CombinedOutput()
	return string(output), err
}

// killable are the lines of a script before which it can be killed: all but comments, patterns and ends of case, and the rest of a command.
func killable(script string) (lines []int) {
	previous := ""
	for i, line := range strings.Split(script, "\n") {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		within := slices.ContainsFunc([]string{" in", ";;", `\`, "|", "||", "&&"}, func(end string) bool { return strings.HasSuffix(previous, end) })
		if !within && text != "}" {
			lines = append(lines, i+1)
		}
		previous = text
	}
	return lines
}

// insertBefore is a script with commands before some of its lines.
func insertBefore(script string, commands map[int]string) string {
	var out []string
	for i, line := range strings.Split(script, "\n") {
		if command, is := commands[i+1]; is {
			out = append(out, command)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// reached are the lines to which a script comes, of those before which it can be killed. run runs it, and noted is where it notes them.
func reached(t *testing.T, script, noted string, run func(script string) error) (lines []int) {
	t.Helper()
	notes := map[int]string{}
	for _, line := range killable(script) {
		notes[line] = fmt.Sprintf("echo %d >>'%s'", line, noted)
	}
	if err := run(insertBefore(script, notes)); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(noted)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(content)) {
		line, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func TestEncryptionKeysScript(t *testing.T) {
	for name, c := range map[string]struct {
		step  string
		files map[string]string
		// text is in the output; commands are what the distribution was asked for.
		text, commands string
		fails          bool
	}{
		"one command": {step: "rotate-keys", text: "active key new", commands: "rotate-keys"},
		"after another rotation": {step: "rotate-keys", files: map[string]string{"stage": "reencrypt_finished"},
			commands: "rotate-keys"},
		"the command times out": {step: "rotate-keys", files: map[string]string{"timeout": "rotate-keys"}, commands: "rotate-keys"},
		"the command is refused": {step: "rotate-keys", files: map[string]string{"refused": "rotate-keys"}, commands: "rotate-keys",
			fails: true, text: "rotate-keys had no effect: error ID 12345"},
		"it never ends": {step: "rotate-keys", files: map[string]string{"stuck": ""}, commands: "rotate-keys", fails: true,
			text: "Not finished in time, at the stage reencrypt_active"},
		"not encrypted": {step: "rotate-keys", files: map[string]string{"keys": ""}, fails: true,
			text: "set secrets-encryption: true"},
		"disabled": {step: "rotate-keys", files: map[string]string{"enabled": "Disabled"}, fails: true,
			text: "secrets-encrypt enable"},
		"other hashes": {step: "rotate-keys", files: map[string]string{"hashes": "hash does not match between a and b"},
			fails: true, text: "between a and b"},
		"another rotation": {step: "rotate-keys", files: map[string]string{"stage": "prepare"}, fails: true,
			text: "its stage is prepare"},
		"the server is down":          {step: "rotate-keys", files: map[string]string{"down": ""}, fails: true, text: "connection refused"},
		"prepare":                     {step: "prepare", commands: "prepare", text: "stage prepare"},
		"prepare, was done elsewhere": {step: "prepare", files: map[string]string{"stage": "prepare"}},
		"prepare, no effect": {step: "prepare", files: map[string]string{"refused": "prepare"}, commands: "prepare prepare",
			fails: true, text: "prepare had no effect"},
		"rotate":                 {step: "rotate", files: map[string]string{"stage": "prepare", "keys": "old\nnew"}, commands: "rotate", text: "stage rotate, active key new"},
		"rotate without prepare": {step: "rotate", fails: true, text: "its stage is start"},
		"reencrypt":              {step: "reencrypt", files: map[string]string{"stage": "rotate", "keys": "new\nold"}, commands: "reencrypt", text: "stage reencrypt_finished"},
		"reencrypt without rotate": {step: "reencrypt", files: map[string]string{"stage": "reencrypt_finished"}, fails: true,
			text: "its stage is reencrypt_finished"},
		"verify": {step: "verify", files: map[string]string{"stage": "reencrypt_finished"},
			text: "all Secrets can be read"},
		"verify, an old key": {step: "verify", fails: true, text: "at the stage start"},
		"verify, other hashes": {step: "verify", files: map[string]string{"stage": "reencrypt_finished",
			"hashes": "hash does not match between a and b"}, fails: true, text: "between a and b"},
		"verify, a Secret cannot be read": {step: "verify", files: map[string]string{"stage": "reencrypt_finished", "unreadable": ""},
			fails: true, text: "unable to decrypt"},
		"verify, the server does not come": {step: "verify", files: map[string]string{"down": ""}, fails: true, text: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newEncryptionHost(t, c.files)
			out, err := h.run(c.step, "200", 0)
			if (err != nil) != c.fails || !strings.Contains(out, c.text) || h.get("log") != c.commands {
				t.Errorf("%v, asked for %q:\n%s", err, h.get("log"), out)
			}
		})
	}
}

// A server that stopped while it wrote Secrets has both keys, and the stage of before: the rest is written, and no other key is made.
func TestEncryptionKeysScriptContinues(t *testing.T) {
	for _, stage := range []string{"start", "reencrypt_finished"} {
		h := newEncryptionHost(t, map[string]string{"stage": stage, "stuck": ""})
		if out, err := h.run("rotate-keys", "60", 0); err == nil {
			t.Fatalf("it ended before all Secrets were written:\n%s", out)
		}
		h.set("stage", stage)
		if err := os.Remove(filepath.Join(h.fake, "stuck")); err != nil {
			t.Fatal(err)
		}
		out, err := h.run("rotate-keys", "600", 0)
		if err != nil || h.get("log") != "rotate-keys reencrypt" || h.get("keys") != "new" {
			t.Errorf("%v, asked for %q, keys %q:\n%s", err, h.get("log"), h.get("keys"), out)
		}
	}
}

// A server whose new key is of secretbox, and that stopped while it wrote Secrets, is not asked to write the rest: k3s refuses that. Where
// only the old key is of secretbox, k3s does it.
func TestEncryptionKeysScriptSecretbox(t *testing.T) {
	for types, refused := range map[string]bool{
		"XSalsa20-POLY1305": true, "XSalsa20-POLY1305 AES-CBC": true, "AES-CBC XSalsa20-POLY1305": false,
	} {
		h := newEncryptionHost(t, map[string]string{"stuck": "", "type": types})
		if out, err := h.run("rotate-keys", "60", 0); err == nil {
			t.Fatalf("%s: it ended before all Secrets were written:\n%s", types, out)
		}
		h.set("stage", "start")
		out, err := h.run("rotate-keys", "600", 0)
		if refused != (strings.Contains(out, "its keys are of secretbox") && h.get("log") == "rotate-keys") || err == nil {
			t.Errorf("%s: %v, asked for %q, keys %q:\n%s", types, err, h.get("log"), h.get("keys"), out)
		}
	}
}

// The script is killed before each of its lines and run again: every key is made once.
func TestEncryptionKeysScriptKilled(t *testing.T) {
	for step, files := range map[string]map[string]string{
		"rotate-keys": nil, "reencrypt": {"stage": "rotate", "keys": "new\nold"},
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			host := newEncryptionHost(t, files)
			lines := reached(t, encryptionKeysSh, filepath.Join(host.dir, "lines"), func(script string) error {
				_, err := host.runScript(script, step, "600")
				return err
			})
			if len(lines) < 25 {
				t.Errorf("it comes to the lines %d", lines)
			}
			for _, line := range lines {
				h := newEncryptionHost(t, files)
				out, err := h.run(step, "600", line)
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != -1 {
					t.Fatalf("killed at line %d: %v\n%s", line, err, out)
				}
				out, err = h.run(step, "600", 0)
				if err != nil || h.get("log") != step || strings.Count(h.get("keys"), "new") != 1 {
					t.Errorf("killed at line %d: %v, asked for %q, keys %q:\n%s", line, err, h.get("log"), h.get("keys"), out)
				}
			}
		})
	}
}

func TestEncryptionKeysInstruction(t *testing.T) {
	op := &operationv1.EncryptionKeyRotation{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
	in := goldenCases(t)["prime"]
	plan, _ := Plan(in)
	for _, task := range []operation.TaskName{operation.TaskRotateKeys, operation.TaskVerifyKeys} {
		with := WithTask(in.Cluster, in.Machine, plan, op, operation.Task{Step: "s", Name: task})
		if err := with.Validate(); err != nil {
			t.Errorf("%s: %v", task, err)
		}
		i := with.Instructions[len(with.Instructions)-1]
		if i.Name != string(task) || !i.SaveOutput || i.Command != "/bin/sh" || !slices.Contains(i.Args, "https://127.0.0.1:9345") ||
			!slices.Contains(i.Args, "/var/lib/rancher/capr/operations/u1") {
			t.Errorf("%s: %+v", task, i)
		}
		if !HasTask(with, op, "s") || HasTask(with, op, "t") || ImpactOf(plan, with) != ImpactNone {
			t.Errorf("%s: the impact is %s", task, ImpactOf(plan, with))
		}
	}
	with := WithTask(in.Cluster, in.Machine, plan, op, operation.Task{Step: "s", Name: operation.TaskRestartServer})
	again := WithTask(in.Cluster, in.Machine, with, op, operation.Task{Step: "t", Name: operation.TaskRestartServer})
	if ImpactOf(plan, with) != ImpactRestart || ImpactOf(with, with) != ImpactNone || ImpactOf(with, again) != ImpactRestart {
		t.Error("a restart is not one")
	}
	if i := with.Instructions[len(with.Instructions)-1]; !slices.Equal(i.Args, []string{"restart", "rke2-server"}) {
		t.Errorf("got %+v", i)
	}
	if got := WithoutTask(again); len(got.Instructions) != len(plan.Instructions) {
		t.Errorf("instructions of the operation are left: %+v", got.Instructions)
	}
}
