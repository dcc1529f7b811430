package registration

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/response"
)

func TestParseImport(t *testing.T) {
	for file, want := range map[string][2]string{
		"id.secret_c-m-abcdefgh.yaml":       {"id.secret", "c-m-abcdefgh"},
		"with_underscore_c-m-abcdefgh.yaml": {"with_underscore", "c-m-abcdefgh"},
		"id.secret_c-m-abcdefgh":            {},
		"c-m-abcdefgh.yaml":                 {},
		"_c-m-abcdefgh.yaml":                {},
		"id.secret_.yaml":                   {},
		".yaml":                             {},
		"":                                  {},
		strings.Repeat("a", tokens.MaxLength+1) + "_c.yaml": {},
	} {
		token, cluster := ParseImport(file)
		if token != want[0] || cluster != want[1] || (CheckImport(file) == nil) != (want[0] != "") {
			t.Errorf("%q is token %q of cluster %q", file, token, cluster)
		}
	}
}

// TestPullConfig: an imported cluster gets the credentials for the registry of the agent's image, and no others.
func TestPullConfig(t *testing.T) {
	secret := func(name string, kind corev1.SecretType, config string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cattle-system", Name: name}, Type: kind,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)}}
	}
	const own = `{"auths":{"registry.example.com":{"username":"u","password":"p"}}}`
	reader := fake.NewClientBuilder().WithObjects(
		secret("opaque", corev1.SecretTypeOpaque, own),
		secret("others", corev1.SecretTypeDockerConfigJson, `{"auths":{"other.example.com":{"username":"x","password":"y"}}}`),
		secret("both", corev1.SecretTypeDockerConfigJson,
			`{"auths":{"registry.example.com":{"username":"u","password":"p"},"other.example.com":{"username":"x","password":"y"}}}`),
		secret("paths", corev1.SecretTypeDockerConfigJson,
			`{"auths":{"registry.example.com/internal":{"username":"x"},"registry.example.com/mirror":{"username":"u"}}}`),
	).Build()
	for _, tc := range []struct {
		name, registry string
		secrets        []string
		want           string
	}{
		{name: "the first that has some", registry: "registry.example.com", secrets: []string{"missing", "opaque", "others", "both"}, want: own},
		{name: "registry with a path", registry: "registry.example.com/mirror", secrets: []string{"both"}, want: own},
		{name: "none has some", registry: "registry.example.com", secrets: []string{"others"}},
		{name: "another path of the registry is for others", registry: "registry.example.com/mirror", secrets: []string{"paths"},
			want: `{"auths":{"registry.example.com/mirror":{"username":"u"}}}`},
		{name: "no registry", secrets: []string{"both"}},
	} {
		g := &Registrar{Options: Options{Live: reader, Settings: settings.Settings{
			SystemDefaultRegistry: tc.registry, PullSecrets: tc.secrets, SystemNamespace: "cattle-system"}}}
		if got, err := g.pullConfig(t.Context()); err != nil || string(got) != tc.want {
			t.Errorf("%s: got %s, %v", tc.name, got, err)
		}
	}
}

// TestImportUsedUp: who finds an import command whose token is used up gets no manifest, in which there may be credentials.
func TestImportUsedUp(t *testing.T) {
	const token = "kkkkkkkkkk.agents"
	fixture := tokenFixture(t, time.Now(), map[string]map[string]string{"crt-token-agents": fixtureToken(token)})
	fixture.live = fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "c-m-1", Name: "crt-token-agents"},
		Data:       map[string][]byte{managementv3.UsedByKey: []byte("one\ntwo")},
	}).Build()
	crt := fixture.client.(tokenReader).tokens[client.ObjectKey{Namespace: "c-m-1", Name: "agents"}]
	for maxUses, left := range map[int64]bool{0: true, 1: false, 2: false, 3: true} {
		crt.Spec.MaxUses = maxUses
		if err := fixture.CheckUses(t.Context(), crt); (err == nil) != left {
			t.Errorf("maxUses %d: %v", maxUses, err)
		}
	}
	crt.Spec.MaxUses = 2
	g := &Registrar{Tokens: fixture}
	if _, err := g.ImportManifest(t.Context(), token+"_c-m-1.yaml", ""); !response.IsCode(err, http.StatusUnauthorized) ||
		!strings.Contains(err.Error(), "used up") {
		t.Errorf("got %v", err)
	}
	crt.Name = "deleted"
	if err := fixture.CheckUses(t.Context(), crt); !errors.Is(err, ErrUnknownToken) {
		t.Errorf("without its Secret: %v", err)
	}
}
