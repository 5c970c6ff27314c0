# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A gRPC server that answers the name of a size with as many bytes, on port 50051."""

from concurrent import futures

import grpc


class Answers(grpc.GenericRpcHandler):
    def service(self, call):
        return grpc.unary_unary_rpc_method_handler(lambda size, _: bytes(int(size)))


server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Answers()])
server.add_insecure_port("0.0.0.0:50051")
server.start()
server.wait_for_termination()
