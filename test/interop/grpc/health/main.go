// Health queries a server with grpc-go's client of the gRPC health protocol. It prints a line for a
// Check of each name in its arguments, and one for a Watch.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func main() {
	target := flag.String("target", "", "host and port of the server")
	flag.Parse()
	conn, err := grpc.NewClient(*target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, name := range flag.Args() {
		response, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: name})
		fmt.Printf("Check %q: %v %v\n", name, status.Code(err), response.GetStatus())
	}
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	fmt.Printf("Watch: %v\n", status.Code(err))
}
