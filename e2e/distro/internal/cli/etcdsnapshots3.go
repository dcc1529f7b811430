package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

// addS3 adds the flags of the bucket, each under two names.
func addS3(c *cobra.Command) {
	flags := c.PersistentFlags()
	for _, name := range []string{"s3", "etcd-s3"} {
		flags.Bool(name, false, "Use the bucket, too")
		for option, usage := range map[string]string{
			"skip-ssl-verify": "Do not verify the certificate of the endpoint",
			"insecure":        "Use plain HTTP",
		} {
			flags.Bool(name+"-"+option, false, usage)
		}
		for option, usage := range map[string]string{
			"endpoint":           "Endpoint of S3 (default: s3.amazonaws.com)",
			"endpoint-ca":        "File of the certificate authority of the endpoint",
			"access-key":         "Access key (or $AWS_ACCESS_KEY_ID)",
			"secret-key":         "Secret key (or $AWS_SECRET_ACCESS_KEY)",
			"session-token":      "Session token (or $AWS_SESSION_TOKEN)",
			"bucket":             "Name of the bucket",
			"bucket-lookup-type": "Where the bucket's name is in requests: auto, dns, path",
			"region":             "Region of the bucket (default: us-east-1)",
			"folder":             "Folder in the bucket",
			"proxy":              "URL of a proxy, or none",
		} {
			flags.String(name+"-"+option, "", usage)
		}
		flags.Int(name+"-retention", 0, "Number of snapshots to keep in the bucket (default: as many as in the folder)")
		flags.Duration(name+"-timeout", 0, "Timeout of requests to S3 (default: 5m)")
	}
}

// s3Settings is the bucket that the command's flags, the configuration files and the environment name, or nil.
func s3Settings(c *cobra.Command, operation string) (*config.S3, error) {
	given := map[string]string{}
	if operation == snapshot.OperationSave {
		given["etcd-snapshot-retention"] = "0" // only the schedule and prune delete old ones
	}
	file := ""
	c.Flags().Visit(func(f *pflag.Flag) {
		name := "etcd-" + strings.TrimPrefix(f.Name, "etcd-")
		switch {
		case f.Name == "config":
			file = f.Value.String()
		case name == "etcd-s3" || strings.HasPrefix(name, "etcd-s3-") || name == "etcd-snapshot-retention":
			given[name] = f.Value.String()
		}
	})
	return config.CommandS3(file, given, os.Getenv)
}
