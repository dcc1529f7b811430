package v3

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "management.cattle.io", Version: "v3"}

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme adds the kinds of this package to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Cluster{}, &ClusterList{}, &ClusterRegistrationToken{}, &ClusterRegistrationTokenList{},
		&NodeDriver{}, &NodeDriverList{}, &Token{}, &TokenList{}, &TunnelAgent{}, &TunnelAgentList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
