package target

import (
	"net/url"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for in, want := range map[string]string{
		"/k8s/clusters/c-m-1/api/v1/pods?watch=1": "c-m-1 /k8s/clusters/c-m-1 /api/v1/pods?watch=1",
		"/k8s/proxy/c-m-1":                        "c-m-1 /k8s/proxy/c-m-1 /",
		"/k8s/clusters/c-m-1/a%2Fb/%C3%A4":        "c-m-1 /k8s/clusters/c-m-1 /a%2Fb/%C3%A4",
		"/k8s/clusters/":                          "",
		"/k8s/clusters//api":                      "",
		"/k8s/other/c-m-1":                        "",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if target, err := Of(u); err == nil {
			got = strings.Join([]string{target.Cluster, target.Root, target.API.String()}, " ")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// FuzzOf checks that any requested path stays within the cluster that it names.
func FuzzOf(f *testing.F) {
	for _, path := range []string{
		"/k8s/clusters/c-m-1/api/v1/pods?watch=1", "/k8s/proxy/c-m-1", "/k8s/clusters/c-m-1//evil/x", "/k8s/clusters/c-m-1/%2F%2e%2e/x",
		"/k8s/clusters/c-m-1/a%zz",
		"/k8s/clusters/c-m-1/@evil/;a=b?x=%", "/k8s/clusters//x", "/k8s/clusters/c%2Fm/x", "/k8s/clusters/c-m-1?#%",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		asked, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		target, err := Of(asked)
		if err != nil {
			return
		}
		if target.Cluster == "" || strings.Contains(target.Cluster, "/") || target.API.RawQuery != asked.RawQuery {
			t.Errorf("%q is for %q, with query %q", path, target.Cluster, target.API.RawQuery)
		}
		sent := *target.API
		sent.Scheme, sent.Host = "http", "cluster"
		// As servers do, which know no fragments.
		read, err := url.ParseRequestURI(sent.String())
		if err != nil || read.Host != "cluster" || read.User != nil || read.Path != target.API.Path || !strings.HasPrefix(read.Path, "/") {
			t.Errorf("%q became %q: %v", path, sent.String(), err)
		}
	})
}
