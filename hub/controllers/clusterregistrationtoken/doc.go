// Package clusterregistrationtoken reconciles the ClusterRegistrationToken. It keeps the token Secret, replaces the token when it expires,
// and shows in the status the commands to run on machines, or in a cluster to import. The commands contain a placeholder instead of the
// token.
package clusterregistrationtoken
