package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLoad(t *testing.T) {
	tests := map[string]struct {
		name, text string
		mode       os.FileMode
		want       Config
		err        string
	}{
		"as the install script writes it": {
			name: "config.yaml",
			text: "workDirectory: /var/lib/rancher/agent/work\nappliedPlanDirectory: /var/lib/rancher/agent/applied\nremoteEnabled: true\n" +
				"localEnabled: false\nlocalPlanDirectory: /var/lib/rancher/agent/plans\ninterlockDirectory: /var/lib/rancher/agent/interlock\n" +
				"preserveWorkDirectory: false\nconnectionInfoFile: /var/lib/rancher/agent/rancher2_connection_info.json\nunknown: 1\n",
			want: Config{
				WorkDirectory: "/var/lib/rancher/agent/work", AppliedPlanDirectory: "/var/lib/rancher/agent/applied", RemoteEnabled: true,
				LocalPlanDirectory: "/var/lib/rancher/agent/plans", InterlockDirectory: "/var/lib/rancher/agent/interlock",
				ConnectionInfoFile: "/var/lib/rancher/agent/rancher2_connection_info.json", StateDirectory: "/var/lib/rancher/agent/state",
			},
		},
		"json": {
			name: "config.json",
			text: `{"remoteEnabled":true,"connectionInfoFile":"/a/b.json","stateDirectory":"/s/t","instructionTimeout":"90s"} trailing`,
			want: Config{RemoteEnabled: true, ConnectionInfoFile: "/a/b.json", WorkDirectory: defaultWorkDirectory, StateDirectory: "/s/t",
				InstructionTimeout: Duration(90 * time.Second)},
		},
		"yml": {
			name: "config.yml", text: "localEnabled: true\nlocalPlanDirectory: /a/plans\nworkDirectory: /a/work/\n",
			want: Config{LocalEnabled: true, LocalPlanDirectory: "/a/plans", WorkDirectory: "/a/work/", StateDirectory: "/a/state"},
		},
		"no socket": {
			name: "c.yaml", text: "localEnabled: true\nlocalPlanDirectory: /a/plans\nworkDirectory: /a/work\nsocket: none\n",
			want: Config{LocalEnabled: true, LocalPlanDirectory: "/a/plans", WorkDirectory: "/a/work", StateDirectory: "/a/state",
				Socket: socketOff},
		},
		"relative socket": {name: "c.yaml", text: "socket: agent.sock", err: `socket: must be an absolute path or "none", got "agent.sock"`},
		"long socket":     {name: "c.yaml", text: "socket: /" + strings.Repeat("s", 107), err: "socket: must have at most 107 bytes, got 108"},
		"world-readable":  {name: "c.yaml", mode: 0o644, text: "remoteEnabled: true", err: "mode must be 0600, got 0644"},
		"too strict":      {name: "c.yaml", mode: 0o400, text: "remoteEnabled: true", err: "mode must be 0600, got 0400"},
		"other ending":    {name: "c.toml", text: "a", err: "the file name must contain .json, .yaml or .yml"},
		"not YAML":        {name: "c.yaml", text: "a: [", err: "decoding "},
		"nothing enabled": {name: "c.yaml", text: "{}", err: "remoteEnabled, localEnabled: at least one must be true"},
		"no connection":   {name: "c.yaml", text: "remoteEnabled: true", err: "connectionInfoFile: is required if remoteEnabled is true"},
		"no plans":        {name: "c.yaml", text: "localEnabled: true", err: "localPlanDirectory: is required if localEnabled is true"},
		"relative":        {name: "c.yaml", text: "workDirectory: work", err: `workDirectory: must be an absolute path, got "work"`},
		"root":            {name: "c.yaml", text: "workDirectory: /usr/", err: `workDirectory: must not be a top-level directory, got "/usr/"`},
		"metrics for all": {name: "c.yaml", text: "metricsAddress: 0.0.0.0:9099",
			err: `metricsAddress: "0.0.0.0:9099" must be a loopback address`},
		"number as time": {name: "c.yaml", text: "periodicTimeout: 3",
			err: `periodicTimeout: must be a positive duration with its unit, such as "90s" or "1h30m"`},
		"negative time": {name: "c.yaml", text: "instructionTimeout: -3s", err: "instructionTimeout: must be a positive duration"},
		"no unit":       {name: "c.json", text: `{"upgradeTimeout": "10"}`, err: "upgradeTimeout: must be a positive duration"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Load(write(t, test.name, test.text, test.mode))
			if !checkError(t, err, test.err) {
				return
			}
			test.want.ImagesDirectory, test.want.AgentRegistriesFile = defaultImagesDirectory, defaultRegistriesFile
			test.want.ImageCacheDirectory = test.want.StateDirectory
			test.want.ImageCredentialProviderConfig = defaultProviderConfig
			test.want.ImageCredentialProviderBinDirectory = defaultProviderBinaries
			if test.want.InstructionTimeout == 0 {
				test.want.InstructionTimeout = Duration(defaultInstructionTimeout)
			}
			test.want.PeriodicTimeout = Duration(defaultPeriodicTimeout)
			test.want.UpgradeTimeout = Duration(defaultUpgradeTimeout)
			if test.want.Socket == "" {
				test.want.Socket = defaultSocket
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadConnection(t *testing.T) {
	tests := map[string]struct {
		name, text, err string
	}{
		"complete":       {name: "rancher2_connection_info.json", text: `{"kubeConfig":"k","namespace":"n","secretName":"s"}`},
		"while checking": {name: "rancher2_connection_info.json.tmp", text: `{"kubeConfig":"k","namespace":"n","secretName":"s"}`},
		"an error page": {name: "c.json", text: `{"message":"401"}`,
			err: "kubeConfig: is required\nnamespace: is required\nsecretName: is required"},
		"empty": {name: "c.json", text: ``, err: "EOF"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := LoadConnection(write(t, test.name, test.text, 0))
			if checkError(t, err, test.err) {
				if diff := cmp.Diff(Connection{KubeConfig: "k", Namespace: "n", SecretName: "s"}, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestLoadRefusesForeignAndIrregularFiles(t *testing.T) {
	_, err := Load("")
	checkError(t, err, "the path is empty")
	_, err = Load(filepath.Join(t.TempDir(), "missing.yaml"))
	checkError(t, err, "no such file")
	dir := filepath.Join(t.TempDir(), "dir.yaml")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = Load(dir)
	checkError(t, err, "not a regular file")
	large := write(t, "large.yaml", strings.Repeat("#", maxFileBytes+1), 0)
	_, err = Load(large)
	checkError(t, err, "larger than")
	if os.Getuid() == 0 {
		foreign := write(t, "foreign.yaml", "remoteEnabled: true", 0)
		if err := os.Chown(foreign, 1, 1); err != nil {
			t.Fatal(err)
		}
		_, err = Load(foreign)
		checkError(t, err, "owner must be 0:0, got 1:1")
	}
}

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	if mode == 0 {
		mode = 0o600
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkError fails unless err contains want; it returns true if no error is expected.
func checkError(t *testing.T, err error, want string) bool {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Fatalf("unexpected error: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Fatalf("got error %v, want %q", err, want)
	}
	return want == ""
}

// TestUnknownKeys: a mistyped key has no effect, and whoever wrote it can find out.
func TestUnknownKeys(t *testing.T) {
	for name, content := range map[string]string{
		"config.yaml": "localEnabled: true\nplanSignature: enforce\nWorkDirectory: /srv/agent/work\nextra: {a: 1}\n" +
			"tunnel: {enable: true, allow: []}\n",
		"config.json": `{"localEnabled": true, "planSignature": "enforce", "WorkDirectory": "/srv/agent/work", "extra": {"a": 1},
			"tunnel": {"enable": true, "Allow": []}}`,
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := UnknownKeys(path); err != nil || !slices.Equal(got, []string{"extra", "planSignature", "tunnel.enable"}) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}
