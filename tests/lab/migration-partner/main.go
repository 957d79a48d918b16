// kube-controller-manager, upstream's app package as it is, with a cloud of the lab's own: the last minor versions
// that still run a cloud's loops need one to run them with.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	_ "cairn.dev/lab/migration-partner/cloud"
)

func main() { os.Exit(cli.Run(app.NewControllerManagerCommand())) }
