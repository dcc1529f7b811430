// Package clusterctl makes the files with which clusterctl installs Drover: the components of each provider, templates of clusters, and an
// archive of them that is a repository for clusterctl. Definitions and rights are those of hub/api/crds and packaging/rbac.
package clusterctl

import (
	"bytes"
	_ "embed"
	"fmt"
	"text/template"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/api/crds"
	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/packaging/rbac"
)

// The chart has the kind in which clusterctl keeps what is installed. The other kind of the package is a file format.
//
//go:generate go tool controller-gen crd:crdVersions=v1,maxDescLen=0 paths=sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3 output:crd:dir=../chart/drover/crds
//go:generate rm ../chart/drover/crds/clusterctl.cluster.x-k8s.io_metadata.yaml

// namespace is that of all components, unless clusterctl is told another one. It is the default of --system-namespace.
const namespace = "cattle-system"

// webhookService leads to the webhooks of the hub (hub/server).
const webhookService = "drover-webhook"

// hubImage is the image of the hub, with its registry: clusterctl refuses names without one.
const hubImage = "docker.io/drover/hub"

//go:embed manager.yaml
var managerText string

var manager = template.Must(template.New("manager.yaml").Parse(managerText))

// Components returns the components file of a provider, with images of a tag.
func Components(p provider.Provider, tag string) ([]byte, error) {
	definitions, err := crds.Definitions(crds.Options{SkipCAPI: true, Providers: provider.Set{p}})
	if err != nil {
		return nil, err
	}
	roles, err := roles(p, definitions)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = manager.Execute(&out, map[string]any{
		"Provider": p, "Label": p.Value(), "Namespace": namespace, "Image": hubImage + ":" + tag,
		"ClusterAgentImage": "drover/cluster-agent:" + tag, "NeedsURL": p != provider.Infrastructure, "Gateway": p == provider.ControlPlane,
		"Infrastructure": p == provider.Infrastructure,
	})
	if err != nil {
		return nil, fmt.Errorf("writing the Deployment of %s: %w", p, err)
	}
	return appendObjects(out.Bytes(), append(roles, objects(definitions)...))
}

// CoreComponents returns the components file of Cluster API's core for installations where the hub runs it: its definitions.
func CoreComponents() ([]byte, error) {
	definitions, err := crds.CAPIDefinitions(&apiextensionsv1.WebhookClientConfig{
		Service: &apiextensionsv1.ServiceReference{Namespace: namespace, Name: webhookService, Port: new(int32(443))},
	})
	if err != nil {
		return nil, err
	}
	return appendObjects([]byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: "+namespace+"\n"), objects(definitions))
}

// identityRights are what the admission policies ask of the providers that write what machines are known by, or answer their requests.
var identityRights = map[provider.Provider]string{
	provider.Bootstrap: "rkebootstraps/identity", provider.Infrastructure: "custommachines/requests",
}

// roles returns what the Deployment of a provider may do, and what Cluster API may do with its kinds. clusterctl deletes only cluster-wide
// roles whose names begin with the namespace.
func roles(p provider.Provider, definitions []*apiextensionsv1.CustomResourceDefinition) ([]runtime.Object, error) {
	clusterRules, rules, err := rbac.HubRules()
	if err != nil {
		return nil, err
	}
	managerRules := crds.ManagerRules(definitions)
	if p == provider.Infrastructure {
		managerRules = append(managerRules, crds.NodeDriverRule())
	}
	// The admission policies know the hub by the ServiceAccount of the control-plane provider, and others by these rights.
	if resource := identityRights[p]; resource != "" {
		clusterRules = append(clusterRules, rbacv1.PolicyRule{
			APIGroups: []string{"rke.cattle.io"}, Resources: []string{resource}, Verbs: []string{"update"},
		})
	}
	name := "drover-" + string(p)
	global := namespace + "-" + name
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	out := []runtime.Object{
		&rbacv1.ClusterRole{TypeMeta: rbacType("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: global}, Rules: clusterRules},
		bindCluster(global, subjects),
		&rbacv1.Role{TypeMeta: rbacType("Role"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules},
		&rbacv1.RoleBinding{
			TypeMeta: rbacType("RoleBinding"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		},
		&rbacv1.ClusterRole{
			TypeMeta: rbacType("ClusterRole"),
			ObjectMeta: metav1.ObjectMeta{
				Name: global + "-capi-manager", Labels: map[string]string{crds.AggregateToManager: "true"},
			},
			Rules: managerRules,
		},
	}
	if p == provider.ControlPlane {
		out = append(out, aggregated(global+"-providers"), bindCluster(global+"-providers", subjects))
	}
	return out, nil
}

// aggregated is the ClusterRole of what infrastructure providers grant Cluster API's manager: their kinds may be in other groups than
// infrastructure.cluster.x-k8s.io. Source: Cluster API's provider contract, RBAC.
func aggregated(name string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta: rbacType("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: name},
		AggregationRule: &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{crds.AggregateToManager: "true"}}},
		},
	}
}

// bindCluster binds a ClusterRole in the whole cluster, by a binding of the same name.
func bindCluster(role string, subjects []rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta: rbacType("ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: role}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
}

func rbacType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func objects(definitions []*apiextensionsv1.CustomResourceDefinition) []runtime.Object {
	var out []runtime.Object
	for _, definition := range definitions {
		out = append(out, definition)
	}
	return out
}

// appendObjects appends objects to a file of YAML documents, without the status that their types have.
func appendObjects(file []byte, objects []runtime.Object) ([]byte, error) {
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("encoding %T: %w", object, err)
		}
		delete(content, "status")
		if content["rules"] == nil { // of an aggregated ClusterRole they belong to the controller of Kubernetes that aggregates them
			delete(content, "rules")
		}
		raw, err := yaml.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("encoding %T: %w", object, err)
		}
		file = append(append(file, "---\n"...), raw...)
	}
	return file, nil
}
