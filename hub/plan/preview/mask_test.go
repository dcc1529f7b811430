package preview

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/plans"
)

func TestContent(t *testing.T) {
	mask := NewMask([]byte("key"), [][]byte{[]byte("verysecrettoken"), []byte("abc")}, []string{"/etc/from-a-secret.yaml"})
	// marked stands for any mark.
	tests := []struct{ name, path, content, want string }{
		{
			name: "configuration", path: "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml",
			content: `{"token":"first","agent-token":"second","node-ip":["10.0.0.1"],"secrets-encryption":true,"kube-apiserver-arg":["audit-log-path=/a","bearer-token=third"]}`,
			want: "agent-token: ?\nkube-apiserver-arg:\n- audit-log-path=/a\n- bearer-token=?\nnode-ip:\n- 10.0.0.1\nsecrets-encryption: " +
				"true\ntoken: ?\n",
		},
		{
			name: "registries", path: "/etc/rancher/k3s/registries.yaml",
			content: `{"configs":{"r.example.com":{"auth":{"username":"u","password":"p"},"tls":{"ca_file":"/ca","key_file":"/key"}},"q":{"auth":{"auth":"dXNlcjpw","identity_token":"i"}}}}`,
			want: "configs:\n  q:\n    auth:\n      auth: ?\n      identity_token: ?\n  r.example.com:\n    auth:\n      password: ?\n      " +
				"username: u\n" +
				"    tls:\n      ca_file: /ca\n      key_file: /key\n",
		},
		{name: "a known secret in a harmless place", path: "/a.yaml", content: "note: x verysecrettoken y", want: "note: x ? y\n"},
		{name: "a password in a URL", path: "/a.yaml", content: "mirror: https://me:pw@r.example.com/v2",
			want: "mirror: https://?@r.example.com/v2\n"},
		{name: "a Secret among manifests", path: "/m.yaml", content: "kind: ConfigMap\ndata:\n  a: b\n---\nkind: Secret\nstringData:\n  a: b\n",
			want: "data:\n  a: b\nkind: ConfigMap\n---\nkind: Secret\nstringData:\n  a: ?\n"},
		{name: "values of a chart", path: "/c.yaml", content: "spec:\n  valuesContent: |\n    adminPassword: x\n    replicas: 2\n",
			want: "spec:\n  valuesContent:\n    adminPassword: ?\n    replicas: 2\n"},
		{name: "a private key", path: "/tls.key", content: "-----BEGIN EC PRIVATE KEY-----\nx\n-----END EC PRIVATE KEY-----\n", want: "?\n"},
		{name: "a private key within a document", path: "/a.yaml", content: "pem: |\n  -----BEGIN EC PRIVATE KEY-----\n  x\n", want: "pem: ?\n"},
		{name: "what is no document", path: "/script", content: "#!/bin/sh\necho hi\n", want: "?\n"},
		{name: "a file that comes from a Secret", path: "/etc/from-a-secret.yaml", content: "a: b", want: "?\n"},
		{name: "a file that is a secret", path: "/t", content: "verysecrettoken\n", want: "?\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, anyMark(mask.Content(test.path, []byte(test.content)))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// anyMark puts ? in the place of marks.
func anyMark(text string) string {
	for {
		before, rest, found := strings.Cut(text, "(hidden, ")
		if !found {
			return text
		}
		_, after, _ := strings.Cut(rest, ")")
		text = before + "?" + after
	}
}

func TestMarks(t *testing.T) {
	mask, other := NewMask([]byte("one key"), nil, nil), NewMask([]byte("another"), nil, nil)
	first, again := mask.mark([]byte("a")), mask.mark([]byte("a"))
	if first != again || first == mask.mark([]byte("b")) {
		t.Error("equal values must have equal marks, and others not")
	}
	if mask.mark([]byte("a")) == other.mark([]byte("a")) {
		t.Error("marks can be compared between two answers, and so be guessed")
	}
}

func file(path, content string) plans.File {
	return plans.File{Path: path, Content: base64.StdEncoding.EncodeToString([]byte(content))}
}

func TestPlans(t *testing.T) {
	install := func(image, stamp string) plans.Instruction {
		return plans.Instruction{CommonInstruction: plans.CommonInstruction{
			Name: "install", Image: image, Env: []string{"RESTART_STAMP=" + stamp, "HTTP_PROXY=http://me:pw@proxy"}, Args: []string{"-c", "run.sh"},
		}}
	}
	before := plans.Plan{
		Files:        []plans.File{file("/a.yaml", "token: one\nnode: x\n"), file("/b.yaml", "a: 1"), file("/same", "x: y")},
		Instructions: []plans.Instruction{install("i:1", "s1")},
		Probes:       map[string]plans.Probe{"kubelet": {Name: "kubelet"}},
	}
	after := plans.Plan{
		Files: []plans.File{file("/a.yaml", "token: two\nnode: z\n"), {Path: "/b.yaml", Action: plans.ActionDelete}, file("/same", "x: y"),
			file("/c.yaml", "c: 1")},
		Instructions: []plans.Instruction{install("i:2", "s2")},
	}
	var got []string
	for _, c := range NewMask(nil, nil, nil).Plans(before, after) {
		got = append(got, string(c.Kind)+" "+c.What+" "+c.Name)
		for line := range strings.Lines(anyMark(c.Diff)) {
			if (line[0] == '+' || line[0] == '-') && !strings.HasPrefix(line, "+++") && !strings.HasPrefix(line, "---") {
				got = append(got, "  "+strings.TrimRight(line, "\n"))
			}
		}
	}
	want := []string{
		"add file /c.yaml", "  +c: 1",
		"change file /a.yaml", "  -node: x", "  -token: ?", "  +node: z", "  +token: ?",
		"change file /b.yaml", "  -a: 1", "  +# is removed from the machine",
		"change instruction install", "  -- RESTART_STAMP=s1", "  +- RESTART_STAMP=s2", "  -image: i:1", "  +image: i:2",
		"remove probe kubelet", "  -httpGet: {}", "  -name: kubelet",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
