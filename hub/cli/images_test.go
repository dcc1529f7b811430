package cli

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/packaging/images"
)

// listImages runs "hub images list" of version v1.2.3+rc1.
func listImages(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	defer func(before string) { Version = before }(Version)
	Version = "v1.2.3+rc1"
	var out, errs bytes.Buffer
	code = Main(append([]string{"images", "list"}, args...), &out, &errs)
	return out.String(), errs.String(), code
}

func TestImagesList(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		want   []string
		stderr string
	}{
		{
			name: "this version", want: []string{"drover/cluster-agent:v1.2.3-rc1", "drover/hub:v1.2.3-rc1", "drover/system-agent:v1.2.3-rc1"},
			stderr: "no installer images are listed: this hub supports v1.33 to v1.36",
		},
		{
			name: "releases, one of them twice",
			args: []string{"--kubernetes-version=v1.36.3+rke2r1,v1.36.3+k3s1", "--kubernetes-version=v1.36.3+k3s1"},
			want: []string{"drover/cluster-agent:v1.2.3-rc1", "drover/hub:v1.2.3-rc1", "drover/system-agent:v1.2.3-rc1",
				"rancher/system-agent-installer-k3s:v1.36.3-k3s1", "rancher/system-agent-installer-rke2:v1.36.3-rke2r1"},
		},
		{
			name: "as the hub is configured",
			args: []string{"--system-default-registry=registry.example.com/mirror", "--installer-image=acme/installer-",
				"--cluster-agent-image=acme/agent:v2", "--kubernetes-version=v1.36.3+k3s1"},
			want: []string{"registry.example.com/mirror/acme/agent:v2", "registry.example.com/mirror/acme/installer-k3s:v1.36.3-k3s1",
				"registry.example.com/mirror/drover/hub:v1.2.3-rc1", "registry.example.com/mirror/drover/system-agent:v1.2.3-rc1"},
		},
		{
			name: "release data",
			args: []string{"--release-data=../plan/release/testdata/published.json", "--cluster-agent-image=drover/hub:v1.2.3-rc1"},
			want: []string{"drover/hub:v1.2.3-rc1", "drover/system-agent:v1.2.3-rc1",
				"rancher/system-agent-installer-k3s:v1.20.15-k3s1", "rancher/system-agent-installer-k3s:v1.35.1-k3s1",
				"rancher/system-agent-installer-k3s:v1.35.2-k3s1", "rancher/system-agent-installer-rke2:v1.38.0-rke2r1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, errs, code := listImages(t, test.args...)
			if diff := cmp.Diff(test.want, strings.Fields(out)); code != 0 || diff != "" {
				t.Errorf("exit code %d, %s (-want +got):\n%s", code, errs, diff)
			}
			if test.stderr == "" && errs != "" || !strings.Contains(errs, test.stderr) {
				t.Errorf("standard error is %q, want %q", errs, test.stderr)
			}
		})
	}
}

func TestImagesListAsJSON(t *testing.T) {
	out, errs, code := listImages(t, "-o", "json", "--kubernetes-version=v1.36.3+k3s1")
	var got []imageLine
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
		t.Fatalf("exit code %d, %s%v", code, errs, err)
	}
	want := []imageLine{
		{Image: "drover/cluster-agent:v1.2.3-rc1", Component: "cluster-agent"},
		{Image: "drover/hub:v1.2.3-rc1", Component: "hub"},
		{Image: "drover/system-agent:v1.2.3-rc1", Component: "system-agent"},
		{Image: "rancher/system-agent-installer-k3s:v1.36.3-k3s1", Component: "installer", KubernetesVersion: "v1.36.3+k3s1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

// Every image that a release publishes is listed, under its name.
func TestImagesListHasAllThatAreBuilt(t *testing.T) {
	out, _, _ := listImages(t)
	for _, name := range images.Names() {
		if !slices.Contains(strings.Fields(out), "drover/"+name+":v1.2.3-rc1") {
			t.Errorf("drover/%s is built, and not among\n%s", name, out)
		}
	}
}

func TestImagesListErrors(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	release := "--kubernetes-version=v1.36.3+k3s1"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--kubernetes-version=1.36.3+k3s1"}, `--kubernetes-version: "1.36.3+k3s1" lacks the v in front; did you mean "v1.36.3+k3s1"?`},
		{[]string{release, "--release-data=x"}, "specify --kubernetes-version or --release-data, not both"},
		{[]string{"--release-data=/none"}, "--release-data: reading release data: open /none"},
		{[]string{"--release-data=ftp://h/data.json"}, "--release-data: ftp:// is not supported"},
		{[]string{"--release-data=" + gone.URL}, "--release-data: fetching release data: Get "},
		{[]string{"--system-default-registry=https://registry.example.com"}, "--system-default-registry: must be a host"},
		{[]string{"-o", "yaml"}, `--output "yaml" is neither table nor json`},
	} {
		if out, errs, code := listImages(t, test.args...); code != 1 || out != "" || !strings.Contains(errs, test.want) {
			t.Errorf("%s gives exit code %d, %q, %q; want %q", test.args, code, out, errs, test.want)
		}
	}
}
