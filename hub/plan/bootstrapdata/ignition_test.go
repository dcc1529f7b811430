package bootstrapdata

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	ign "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/google/go-cmp/cmp"
)

// parsed has Ignition's own parser read a config, which finds every fault that a machine would stumble over.
func parsed(t *testing.T, data []byte) types.Config {
	t.Helper()
	config, report, err := ign.ParseCompatibleVersion(data)
	if err != nil || len(report.Entries) > 0 {
		t.Fatalf("Ignition says: %v %s", err, report.String())
	}
	return config
}

func TestIgnition(t *testing.T) {
	tests := []struct {
		name, userdata string
		files, units   []string
		users          int
	}{
		{name: "nothing of the user's", files: []string{ignitionScriptPath}, units: []string{ignitionUnitName}},
		{name: "blank", userdata: " \n", files: []string{ignitionScriptPath}, units: []string{ignitionUnitName}},
		{
			name: "ours first, all else kept",
			userdata: `{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]},` +
				`"storage":{"files":[{"path":"/etc/motd","mode":420,"contents":{"source":"data:,hi%20%3C%26%3E"}}],"directories":[{"path":"/srv/x"}]},` +
				`"systemd":{"units":[{"name":"update-engine.service","mask":true}]}}`,
			files: []string{ignitionScriptPath, "/etc/motd"}, units: []string{ignitionUnitName, "update-engine.service"}, users: 1,
		},
		{name: "newer", userdata: `{"ignition":{"version":"3.5.0"},"storage":{}}`, files: []string{ignitionScriptPath},
			units: []string{ignitionUnitName}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data, err := Make(Ignition, []byte(script), tt.userdata)
			if err != nil {
				t.Fatal(err)
			}
			config := parsed(t, data)
			var files, units []string
			for _, f := range config.Storage.Files {
				files = append(files, f.Path)
			}
			for _, u := range config.Systemd.Units {
				units = append(units, u.Name)
			}
			if diff := cmp.Diff([][]string{tt.files, tt.units}, [][]string{files, units}); diff != "" {
				t.Errorf("files and units (-want +got):\n%s", diff)
			}
			if len(config.Passwd.Users) != tt.users {
				t.Errorf("%d users", len(config.Passwd.Users))
			}
			source := strings.TrimPrefix(*config.Storage.Files[0].Contents.Source, "data:;base64,")
			packed, err := base64.StdEncoding.DecodeString(source)
			if err != nil || string(gunzip(t, packed)) != script+sentinelScript {
				t.Errorf("the script is not what was asked for (%v)", err)
			}
			if *config.Storage.Files[0].Mode != 0o600 || !*config.Systemd.Units[0].Enabled {
				t.Error("others can read the script, or nobody runs it")
			}
		})
	}
}

// TestIgnitionKeepsNumbers: what JSON allows and floating point does not hold stays as it is.
func TestIgnitionKeepsNumbers(t *testing.T) {
	const userdata = `{"ignition":{"version":"3.0.0"},"storage":{"disks":[{"device":"/dev/sda","partitions":[{"number":1,"sizeMiB":9007199254740993}]}]}}`
	data, err := Make(Ignition, []byte(script), userdata)
	if err != nil || !bytes.Contains(data, []byte("9007199254740993")) {
		t.Errorf("the number is another: %s (%v)", data, err)
	}
}

// FuzzMake: whatever a user writes, it is refused with its field, or what comes out can be read again by those who run it.
func FuzzMake(f *testing.F) {
	for _, userdata := range []string{
		"", "#cloud-config\nruncmd: [a]\n", "## template: jinja\n#cloud-config\na: b\n", "write_files:\n- path: /a\n", "a: &x [1]\nruncmd: *x\n",
		"{}", "null", "? a\n",
		`{"ignition":{"version":"3.4.0"}}`, `{"ignition":{"version":"3.0.0"},"storage":{"files":[{"path":"/a"}]}}`, "<<: {a: b}\n",
		"a: !!binary aGk=\n",
	} {
		f.Add(userdata, true)
		f.Add(userdata, false)
	}
	f.Fuzz(func(t *testing.T, userdata string, asIgnition bool) {
		if asIgnition {
			data, err := Make(Ignition, []byte(script), userdata)
			if err == nil && !json.Valid(data) {
				t.Errorf("no JSON comes out of %q", userdata)
			}
			return
		}
		data, err := Make(CloudConfig, []byte(script), userdata)
		if err != nil {
			return
		}
		if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
			data = gunzip(t, data)
		}
		if _, _, err := parseCloudConfig(string(data)); err != nil {
			t.Errorf("what comes out of %q cannot be read: %v\n%s", userdata, err, data)
		}
	})
}
