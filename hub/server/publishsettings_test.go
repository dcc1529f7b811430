package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestServerURLChanges: an operator who changes the server URL reads once what follows from that.
func TestServerURLChanges(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).Build()
	for _, step := range []struct {
		what, url, registry string
		warns               bool
	}{
		{what: "the first start", url: "https://a.example.com"},
		{what: "another start", url: "https://a.example.com"},
		{what: "another setting", url: "https://a.example.com", registry: "registry.example.com"},
		{what: "another URL", url: "https://b.example.com", registry: "registry.example.com", warns: true},
		{what: "a start after that", url: "https://b.example.com", registry: "registry.example.com"},
	} {
		var log bytes.Buffer
		opts := Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Settings: settings.Settings{
			ServerURL: step.url, SystemDefaultRegistry: step.registry, SystemNamespace: "drover-system"}}
		if err := publishSettings(t.Context(), c, opts); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); (got != "") != step.warns || step.warns &&
			!(strings.Contains(got, "previous=https://a.example.com") && strings.Contains(got, "serverURL=https://b.example.com")) {
			t.Errorf("%s: logged %q", step.what, got)
		}
	}
}
