package bootstrapdata

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestScript(t *testing.T) {
	data, err := Make(Script, []byte(script), " \n")
	if err != nil || string(data) != script+sentinelScript {
		t.Errorf("got %q, %v", data, err)
	}
}

// TestSentinel: the file is there after the script has succeeded, and only then.
func TestSentinel(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		script string
		want   bool
	}{{"set -eu\nfalse\n", false}, {"set -eu\numask 077\ntrue\n", true}} {
		data, err := Make(Script, []byte("#!/bin/sh\n"+tt.script), "")
		if err != nil {
			t.Fatal(err)
		}
		local := strings.ReplaceAll(string(data), "/run/", dir+"/run/")
		out, err := exec.Command("sh", "-c", local).CombinedOutput()
		if (err == nil) != tt.want {
			t.Errorf("%q ends with %v: %s", tt.script, err, out)
		}
		content, err := os.ReadFile(dir + sentinel)
		if (err == nil) != tt.want || tt.want && string(content) != "success\n" {
			t.Errorf("%q: the file holds %q (%v)", tt.script, content, err)
		}
	}
}

// TestRetried: while the script has not succeeded, a unit is there that runs it at the next boot; afterwards there is none.
func TestRetried(t *testing.T) {
	for _, tt := range []struct {
		script string
		want   bool
	}{{"set -eu\nfalse\n", true}, {"set -eu\ntrue\n", false}} {
		dir := t.TempDir()
		const link = "/etc/systemd/system/multi-user.target.wants/rancher-bootstrap.service"
		for _, name := range []string{"bin", "etc/systemd/system/multi-user.target.wants"} {
			if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		systemctl := "#!/bin/sh\n[ \"$*\" = \"enable rancher-bootstrap.service\" ] && ln -s " + dir + retryUnit + " " + dir + link + "\n"
		for name, program := range map[string]string{"systemctl": systemctl, "sync": "#!/bin/sh\n"} {
			if err := os.WriteFile(filepath.Join(dir, "bin", name), []byte(program), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		data := string(retried([]byte("#!/bin/sh\n" + tt.script + sentinelScript)))
		local := strings.NewReplacer("/run/", dir+"/run/", "/etc/", dir+"/etc/").Replace(data)
		cmd := exec.Command("sh", "-c", local)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); (err != nil) != tt.want {
			t.Errorf("%q ends with %v: %s", tt.script, err, out)
		}
		unit, err := os.ReadFile(dir + link)
		runs := strings.Contains(string(unit), "\nExecStart=/bin/sh "+scriptPath+"\nRestart=on-failure\n")
		if (err == nil) != tt.want || runs != tt.want {
			t.Errorf("%q: the unit is %q (%v)", tt.script, unit, err)
		}
		if _, err := os.Stat(dir + retryUnit); (err == nil) != tt.want {
			t.Errorf("%q: %v", tt.script, err)
		}
	}
}

func TestFormats(t *testing.T) {
	for format, want := range map[Format]string{CloudConfig: "cloud-config", Script: "cloud-config", Ignition: "ignition"} {
		if got := format.ProviderFormat(); got != want {
			t.Errorf("%s is told to providers as %s", format, got)
		}
	}
}

func TestInvalid(t *testing.T) {
	tests := []struct {
		name     string
		format   Format
		userdata string
		field    string
		want     string
	}{
		{"unknown format", "butane", "", "spec.userdata.format", `"butane" is no format; write cloud-config, script or ignition`},
		{"script with user data", Script, "runcmd: []", "", "leave it empty"},
		{"a shell script", CloudConfig, "#!/bin/bash\necho secret", "", `it begins with "#!"; only a cloud-config can be merged`},
		{"MIME", CloudConfig, "MIME-Version: 1.0\n", "", `it begins with "mime-version:"`},
		{"an archive", CloudConfig, "#cloud-config-archive\n- a: b\n", "", "#cloud-config-archive"},
		{"no YAML", CloudConfig, "#cloud-config\na: secret: b\n", "", "it is not valid YAML: line 2: "},
		{"line numbers hold behind a template's header", CloudConfig, "## template: jinja\n#cloud-config\n\ta: secret\n", "", "line 3"},
		{"a list", CloudConfig, "- secret\n", "", "it is not a cloud-config"},
		{"a text", CloudConfig, "secret", "", "it is not a cloud-config"},
		{"two documents", CloudConfig, "a: b\n---\nc: secret\n", "", "more than one YAML document"},
		{"a key twice", CloudConfig, "a: secret\nruncmd: []\na: c\n", "", "line 3: the key a is there twice"},
		{"runcmd is no list", CloudConfig, "runcmd: secret\n", "", "line 1: runcmd must be a list"},
		{"write_files is no list", CloudConfig, "a: b\nwrite_files: {path: secret}\n", "", "line 2: write_files must be a list"},
		{"cloud-config as Ignition", Ignition, "#cloud-config\nsecret: a\n", "", "set spec.userdata.format to cloud-config"},
		{"no version", Ignition, `{"ignition":{},"secret":1}`, "", "ignition.version must be 3.x"},
		{"old version", Ignition, `{"ignition":{"version":"2.3.0"}}`, "", "ignition.version must be 3.x"},
		{"two objects", Ignition, `{"ignition":{"version":"3.0.0"}} {"secret":1}`, "", "there is more behind the Ignition config"},
		{"storage is a list", Ignition, `{"ignition":{"version":"3.0.0"},"storage":["secret"]}`, "", "storage must be an object"},
		{"files is an object", Ignition, `{"ignition":{"version":"3.0.0"},"storage":{"files":{"secret":1}}}`, "", "storage.files must be a list"},
		{"our unit", Ignition, `{"ignition":{"version":"3.0.0"},"systemd":{"units":[{"name":"a"},{"name":"rancher-bootstrap.service"}]}}`, "",
			"systemd.units[1]: the hub's own is called rancher-bootstrap.service; take another name"},
		{"our file", Ignition, `{"ignition":{"version":"3.0.0"},"storage":{"files":[{"path":"/etc/rancher/bootstrap/install.sh"}]}}`, "",
			"storage.files[0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Make(tt.format, []byte(script), tt.userdata)
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v", err)
			}
			field := tt.field
			if field == "" {
				field = "spec.userdata.inlineUserdata"
			}
			if invalid.Field != field || !strings.Contains(invalid.Detail, tt.want) {
				t.Errorf("got %v, want %s: ...%s", err, field, tt.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the message quotes the user data: %v", err)
			}
		})
	}
}
