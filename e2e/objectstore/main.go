// Command objectstore is an S3 server for tests and labs: versitygw with a folder as its storage, a certificate authority and an access key
// of its own. Clients have to sign their requests. It must only ever listen on loopback or inside a lab's network.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "", "folder for objects, certificates and the access key")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "address and port; port 0 is any that is free")
	buckets := flag.String("buckets", "snapshots", "buckets to create, with commas between")
	flag.BoolVar(&o.plain, "plain", false, "serve plain HTTP")
	flag.BoolVar(&o.quit, "quit-with-stdin", false, "end when standard input ends, as it does with the parent process")
	flag.Parse()
	if o.dir == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	o.buckets = strings.Split(*buckets, ",")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if o.quit {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	if err := serve(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "objectstore:", err)
		os.Exit(1)
	}
}
