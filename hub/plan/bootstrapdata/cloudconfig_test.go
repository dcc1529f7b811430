package bootstrapdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/packaging/install"
)

const script = "#!/bin/sh\necho installed\n"

// writeFile and cloudInit are what cloud-init sees of a document.
type writeFile struct {
	Path, Content, Encoding, Permissions string
}

type cloudInit struct {
	WriteFiles []writeFile `json:"write_files"`
	RunCmd     []any       `json:"runcmd"`
	Hostname   string      `json:"hostname"`
	Users      []any       `json:"users"`
}

// read takes a document as cloud-init does: whole documents may be compressed, and so may files in them.
func read(t *testing.T, data []byte) (headers []string, document cloudInit) {
	t.Helper()
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		data = gunzip(t, data)
	}
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		headers = append(headers, strings.TrimSpace(line))
	}
	if err := yaml.Unmarshal(data, &document); err != nil {
		t.Fatalf("no YAML comes out: %v", err)
	}
	for i, f := range document.WriteFiles {
		if f.Encoding == "gz+b64" {
			packed, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil {
				t.Fatal(err)
			}
			document.WriteFiles[i].Content = string(gunzip(t, packed))
		}
	}
	return headers, document
}

func gunzip(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func TestCloudConfig(t *testing.T) {
	ours := writeFile{Path: "/usr/local/custom_script/install.sh", Content: string(retried([]byte(script + sentinelScript))),
		Encoding: "gz+b64", Permissions: "0600"}
	const run = "sh /usr/local/custom_script/install.sh"
	tests := []struct {
		name, userdata string
		headers        []string
		want           cloudInit
	}{
		{name: "nothing of the user's", want: cloudInit{WriteFiles: []writeFile{ours}, RunCmd: []any{run}}},
		{name: "only comments", userdata: "#cloud-config\n# nothing yet\n", want: cloudInit{WriteFiles: []writeFile{ours}, RunCmd: []any{run}}},
		{
			name: "ours first, all else kept",
			userdata: "#cloud-config\n# the company's\nhostname: one\nruncmd:\n- [ls, -l]\n- echo done\nwrite_files:\n" +
				"- path: /etc/motd\n  content: |\n    hello\n    world\n  permissions: '0644'\n",
			want: cloudInit{Hostname: "one", RunCmd: []any{run, []any{"ls", "-l"}, "echo done"},
				WriteFiles: []writeFile{ours, {Path: "/etc/motd", Content: "hello\nworld\n", Permissions: "0644"}}},
		},
		{name: "no header, flow style", userdata: "{hostname: one, runcmd: [a]}",
			want: cloudInit{Hostname: "one", WriteFiles: []writeFile{ours}, RunCmd: []any{run, "a"}}},
		{name: "empty lists", userdata: "runcmd:\nwrite_files: []\n", want: cloudInit{WriteFiles: []writeFile{ours}, RunCmd: []any{run}}},
		{name: "anchors", userdata: "x: &a [one]\nruncmd: *a\nusers: [{name: &n u}, {name: *n}]\n",
			want: cloudInit{WriteFiles: []writeFile{ours}, RunCmd: []any{run, "one"},
				Users: []any{map[string]any{"name": "u"}, map[string]any{"name": "u"}}}},
		{name: "a template", userdata: "## template: jinja\n#cloud-config\nhostname: \"{{ ds.meta_data.hostname }}\"\n",
			headers: []string{"## template: jinja", "#cloud-config"},
			want:    cloudInit{Hostname: "{{ ds.meta_data.hostname }}", WriteFiles: []writeFile{ours}, RunCmd: []any{run}}},
		{name: "lines of Windows", userdata: "#cloud-config\r\nhostname: one\r\n",
			want: cloudInit{Hostname: "one", WriteFiles: []writeFile{ours}, RunCmd: []any{run}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data, err := Make(CloudConfig, []byte(script), tt.userdata)
			if err != nil {
				t.Fatal(err)
			}
			headers, got := read(t, data)
			if tt.headers == nil {
				tt.headers = []string{"#cloud-config"}
			}
			if diff := cmp.Diff(tt.headers, headers[:len(tt.headers)]); diff != "" {
				t.Errorf("first lines (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCloudConfigKeepsText: what cloud-init reads in its own way is not touched.
func TestCloudConfigKeepsText(t *testing.T) {
	const userdata = "power_state: {delay: now}\nwrite_files:\n  - path: /a\n    permissions: 0644\n    owner: \"0:0\"\nexpire: 2026-01-02\nswap: {size: 010}\nssh_pwauth: yes\n"
	data, err := Make(CloudConfig, []byte(script), userdata)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"permissions: 0644\n", "owner: \"0:0\"\n", "expire: 2026-01-02\n", "size: 010", "ssh_pwauth: yes\n"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%q is written in another way:\n%s", want, data)
		}
	}
}

// TestSize: what EC2 takes is 16 KiB. The install script and an ordinary document stay readable below it, more can be compressed.
func TestSize(t *testing.T) {
	full, err := install.CompactScript(install.Var{Name: install.VarServer, Value: "https://hub.example.com"},
		install.Var{Name: install.VarCAChecksum, Value: strings.Repeat("a", 64)},
		install.Var{Name: install.VarToken, Value: strings.Repeat("b", 44)})
	if err != nil {
		t.Fatal(err)
	}
	data, err := Make(CloudConfig, full, "#cloud-config\nssh_authorized_keys:\n- ssh-ed25519 "+strings.Repeat("A", 80)+" me@example.com\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 16<<10 || !bytes.HasPrefix(data, []byte("#cloud-config\n")) {
		t.Errorf("an ordinary document has %d bytes and begins with %q", len(data), data[:16])
	}
	t.Logf("bootstrap data of %d bytes", len(data))

	data, err = Make(CloudConfig, full, "hostname: one\nruncmd:\n"+strings.Repeat("- echo the same again and again\n", 500))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte("#cloud-config\n")) {
		t.Errorf("a large document begins with %q", data[:16])
	}
	if data, err = Compress(data); err != nil {
		t.Fatal(err)
	}
	_, document := read(t, data)
	want := string(retried([]byte(string(full) + sentinelScript)))
	if len(data) > 16<<10 || document.Hostname != "one" || document.WriteFiles[0].Content != want {
		t.Errorf("a large document has %d bytes, or is not what was asked for", len(data))
	}
}

func TestSame(t *testing.T) {
	noise := make([]byte, 40<<10)
	for i := range noise {
		noise[i] = 'a' + byte(rand.IntN(26))
	}
	for _, tt := range []struct {
		format   Format
		userdata string
	}{
		{CloudConfig, "runcmd: [a]\nwrite_files: [{path: /x}]\n"},
		{CloudConfig, "note: " + string(noise)},
		{Ignition, `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/b"},{"path":"/a"}]},"passwd":{}}`},
		{Script, ""},
	} {
		first, err := Make(tt.format, []byte(script), tt.userdata)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if again, err := Make(tt.format, []byte(script), tt.userdata); err != nil || !bytes.Equal(first, again) {
				t.Fatalf("%s: the same inputs give other bytes (%v)", tt.format, err)
			}
		}
	}
}
