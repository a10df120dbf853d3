package com.alibaba.nacos;

import com.alibaba.nacos.core.code.ControllerMethodsCache;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.scheduling.annotation.EnableScheduling;

/** Runs Nacos without its console. It serves services, configurations and users. */
@EnableScheduling
@SpringBootApplication
public class Server {

    /** The HTTP API responds with "not implemented" for controllers outside these packages. */
    public Server(ControllerMethodsCache methods) {
        methods.initClassMethod("com.alibaba.nacos.core.controller");
        methods.initClassMethod("com.alibaba.nacos.naming.controllers");
        methods.initClassMethod("com.alibaba.nacos.config.server.controller");
    }

    public static void main(String[] args) {
        SpringApplication.run(Server.class, args);
    }
}
